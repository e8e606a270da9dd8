"""The tests of tests/consume/test_wait.py, on each face."""

from tests.consume.test_wait import *  # noqa: F403
