"""The tests of tests/delayed/test_delayed.py, on each face."""

from tests.delayed.test_delayed import *  # noqa: F403
