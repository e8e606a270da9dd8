"""The tests of tests/feedback/test_answering.py, on each face."""

from tests.feedback.test_answering import *  # noqa: F403
