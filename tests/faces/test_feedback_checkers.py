"""The tests of tests/feedback/test_checkers.py, on each face."""

from tests.feedback.test_checkers import *  # noqa: F403
