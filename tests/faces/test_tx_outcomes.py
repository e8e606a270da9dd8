"""The tests of tests/tx/test_outcomes.py, on each face."""

from tests.tx.test_outcomes import *  # noqa: F403
