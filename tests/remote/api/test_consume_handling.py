"""The tests of tests/consume/test_handling.py, over frames."""

from tests.consume.test_handling import *  # noqa: F403
