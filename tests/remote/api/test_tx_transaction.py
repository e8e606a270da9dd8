"""The tests of tests/tx/test_transaction.py, over frames."""

from tests.tx.test_transaction import *  # noqa: F403
