"""The tests of tests/feedback/test_send_in_transaction.py, over frames."""

from tests.feedback.test_send_in_transaction import *  # noqa: F403
