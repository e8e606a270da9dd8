"""The tests of tests/consume/test_unread.py, over frames."""

from tests.consume.test_unread import *  # noqa: F403
