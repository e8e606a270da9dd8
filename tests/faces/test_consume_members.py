"""The tests of tests/consume/test_members.py, on each face."""

from tests.consume.test_members import *  # noqa: F403
