"""The tests of tests/tx/test_find.py, over frames."""

from tests.tx.test_find import *  # noqa: F403
