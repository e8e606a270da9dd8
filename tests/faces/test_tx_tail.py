"""The tests of tests/tx/test_tail.py, on each face."""

from tests.tx.test_tail import *  # noqa: F403
