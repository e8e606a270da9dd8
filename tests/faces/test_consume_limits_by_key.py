"""The tests of tests.consume.test_limits_by_key.py, on each face."""

from tests.consume.test_limits_by_key import *  # noqa: F403
