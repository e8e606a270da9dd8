"""The tests of tests/consume/test_replayed.py, on each face."""

from tests.consume.test_replayed import *  # noqa: F403
