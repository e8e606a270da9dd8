"""The tests of tests/consume/test_advancing.py, on each face."""

from tests.consume.test_advancing import *  # noqa: F403
