"""The tests of tests/consume/test_dead_letters.py, over frames."""

from tests.consume.test_dead_letters import *  # noqa: F403
