"""The tests of tests/feedback/test_back_off.py, on each face."""

from tests.feedback.test_back_off import *  # noqa: F403
