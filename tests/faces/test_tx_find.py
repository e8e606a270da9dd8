"""The tests of tests/tx/test_find.py, on each face."""

from tests.tx.test_find import *  # noqa: F403
