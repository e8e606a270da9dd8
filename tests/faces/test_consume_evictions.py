"""The tests of tests/consume/test_evictions.py, on each face."""

from tests.consume.test_evictions import *  # noqa: F403
