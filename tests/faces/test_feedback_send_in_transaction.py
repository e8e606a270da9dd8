"""The tests of tests/feedback/test_send_in_transaction.py, on each face."""

from tests.feedback.test_send_in_transaction import *  # noqa: F403
