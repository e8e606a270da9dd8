"""The tests of tests/consume/test_groups.py, on each face."""

from tests.consume.test_groups import *  # noqa: F403
