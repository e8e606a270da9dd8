"""The tests of tests/consume/test_limits.py, on each face."""

from tests.consume.test_limits import *  # noqa: F403
