"""The tests of tests/tx/test_current_transaction.py, on each face."""

from tests.tx.test_current_transaction import *  # noqa: F403
