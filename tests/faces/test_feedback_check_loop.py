"""The tests of tests/feedback/test_check_loop.py, on each face."""

from tests.feedback.test_check_loop import *  # noqa: F403
