"""The tests of tests/consume/test_handling.py, on each face."""

from tests.consume.test_handling import *  # noqa: F403
