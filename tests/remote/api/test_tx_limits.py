"""The tests of tests/tx/test_limits.py, over frames."""

from tests.tx.test_limits import *  # noqa: F403
