"""The tests of tests/consume/test_unread.py, on each face."""

from tests.consume.test_unread import *  # noqa: F403
