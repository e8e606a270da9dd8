"""The tests of tests/delayed/test_schedules.py, on each face."""

from tests.delayed.test_schedules import *  # noqa: F403
