"""The tests of tests/consume/test_broadcast.py, on each face."""

from tests.consume.test_broadcast import *  # noqa: F403
