"""The tests of tests/tx/test_decisions.py, over frames."""

from tests.tx.test_decisions import *  # noqa: F403
