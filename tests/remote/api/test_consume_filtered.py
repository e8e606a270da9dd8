"""The tests of tests/consume/test_filtered.py, over frames."""

from tests.consume.test_filtered import *  # noqa: F403

# Over frames the chores are nobody's: what retention does is not seen here.
del test_what_does_not_match_is_not_kept  # noqa: F821
