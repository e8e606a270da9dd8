"""The tests of tests/consume/test_ordered.py, on each face."""

from tests.consume.test_ordered import *  # noqa: F403
