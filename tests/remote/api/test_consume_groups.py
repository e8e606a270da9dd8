"""The tests of tests/consume/test_groups.py, over frames."""

from tests.consume.test_groups import *  # noqa: F403

# Over frames the chores are nobody's: what retention does is not seen here.
del test_what_retention_takes_is_counted_and_logged  # noqa: F821
