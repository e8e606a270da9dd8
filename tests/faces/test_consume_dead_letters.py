"""The tests of tests/consume/test_dead_letters.py, on each face."""

from tests.consume.test_dead_letters import *  # noqa: F403
