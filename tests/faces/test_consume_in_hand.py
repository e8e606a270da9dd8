"""The tests of tests/consume/test_in_hand.py, on each face."""

from tests.consume.test_in_hand import *  # noqa: F403
