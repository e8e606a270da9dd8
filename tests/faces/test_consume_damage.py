"""The tests of tests/consume/test_damage.py, on each face."""

from tests.consume.test_damage import *  # noqa: F403
