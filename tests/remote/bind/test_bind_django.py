"""The tests of tests/bind/test_django.py, through a client."""

from tests.bind.test_django import *  # noqa: F403

# They open engines of their own, or none.
del test_a_transaction_that_a_crash_left_is_decided_by_asking_an_alias  # noqa: F821
del test_a_database_that_may_lose_commits_is_refused_if_strict  # noqa: F821
del test_the_migration_makes_the_table_that_ddl_prints  # noqa: F821
del test_the_migrations_are_up_to_date_with_the_model  # noqa: F821
