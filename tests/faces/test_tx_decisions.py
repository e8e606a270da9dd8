"""The tests of tests/tx/test_decisions.py, on each face."""

from tests.tx.test_decisions import *  # noqa: F403
