"""The tests of tests/store/test_extras.py, over frames."""

from tests.store.test_extras import *  # noqa: F403
