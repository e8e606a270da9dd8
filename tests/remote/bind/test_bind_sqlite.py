"""The tests of tests/bind/test_sqlite.py, through a client."""

from tests.bind.test_sqlite import *  # noqa: F403

# They open engines of their own, or none.
del test_a_failure_after_the_databases_commit_has_a_note_about_the_messages  # noqa: F821
del test_a_commit_of_unknown_outcome_is_checked_at_once  # noqa: F821
del test_the_error_says_what_a_check_found_also_without_messages  # noqa: F821
del test_an_address_that_cannot_be_asked_is_refused  # noqa: F821
