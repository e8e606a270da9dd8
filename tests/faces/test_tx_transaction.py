"""The tests of tests/tx/test_transaction.py, on each face."""

from tests.tx.test_transaction import *  # noqa: F403
