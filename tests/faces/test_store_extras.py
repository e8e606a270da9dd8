"""The tests of tests/store/test_extras.py, on each face."""

from tests.store.test_extras import *  # noqa: F403
