"""The tests of tests/consume/test_advancing.py, over frames."""

from tests.consume.test_advancing import *  # noqa: F403
