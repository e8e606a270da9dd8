"""The tests of tests/feedback/test_settle.py, on each face."""

from tests.feedback.test_settle import *  # noqa: F403
