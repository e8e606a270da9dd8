"""The tests of tests/feedback/test_checkers.py, over frames."""

from tests.feedback.test_checkers import *  # noqa: F403
