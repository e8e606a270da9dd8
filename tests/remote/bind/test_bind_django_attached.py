"""The tests of tests/bind/test_django_attached.py, through a client."""

from tests.bind.test_django_attached import *  # noqa: F403

# They open engines of their own.
del test_another_process_finds_the_producer_registered  # noqa: F821
del test_a_database_that_may_lose_commits_is_refused_if_strict  # noqa: F821
