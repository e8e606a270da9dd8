"""The tests of tests/consume/test_priorities.py, on each face."""

from tests.consume.test_priorities import *  # noqa: F403
