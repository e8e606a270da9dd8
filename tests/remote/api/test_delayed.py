"""The tests of tests/delayed/test_delayed.py, over frames."""

from tests.delayed.test_delayed import *  # noqa: F403
