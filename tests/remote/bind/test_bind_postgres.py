"""The tests of tests/bind/test_postgres.py, through a client."""

from tests.bind.test_postgres import *  # noqa: F403

# They open engines of their own, or none.
del test_a_transaction_that_a_crash_left_is_decided_at_open  # noqa: F821
