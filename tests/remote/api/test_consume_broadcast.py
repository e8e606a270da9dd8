"""The tests of tests/consume/test_broadcast.py, over frames."""

from tests.consume.test_broadcast import *  # noqa: F403
