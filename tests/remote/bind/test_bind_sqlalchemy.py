"""The tests of tests/bind/test_sqlalchemy.py, through a client."""

from tests.bind.test_sqlalchemy import *  # noqa: F403

del engine  # noqa: F821 - the client of conftest.py instead

# They open engines of their own, or none.
del test_a_commit_of_unknown_outcome_is_checked_at_once  # noqa: F821
del test_a_database_of_another_kind_is_refused  # noqa: F821
del test_a_transaction_that_a_crash_left_is_decided_at_open  # noqa: F821
del test_an_address_that_sqlalchemy_does_not_know_is_refused  # noqa: F821
