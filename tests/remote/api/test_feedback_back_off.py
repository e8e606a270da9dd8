"""The tests of tests/feedback/test_back_off.py, over frames."""

from tests.feedback.test_back_off import *  # noqa: F403
