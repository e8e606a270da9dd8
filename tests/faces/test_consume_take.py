"""The tests of tests/consume/test_take.py, on each face."""

from tests.consume.test_take import *  # noqa: F403
