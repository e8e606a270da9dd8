"""The tests of tests/consume/test_ack_below.py, on each face."""

from tests.consume.test_ack_below import *  # noqa: F403
