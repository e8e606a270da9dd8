"""The tests of tests/consume/test_priorities.py, over frames."""

from tests.consume.test_priorities import *  # noqa: F403
