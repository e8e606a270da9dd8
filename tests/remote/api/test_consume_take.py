"""The tests of tests/consume/test_take.py, over frames."""

from tests.consume.test_take import *  # noqa: F403
