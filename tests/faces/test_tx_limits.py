"""The tests of tests/tx/test_limits.py, on each face."""

from tests.tx.test_limits import *  # noqa: F403
