"""The tests of tests/tx/test_current_transaction.py, over frames."""

from tests.tx.test_current_transaction import *  # noqa: F403
