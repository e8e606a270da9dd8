"""The tests of tests/feedback/test_asking.py, on each face."""

from tests.feedback.test_asking import *  # noqa: F403
