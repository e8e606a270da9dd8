"""The tests of tests/consume/test_ordered.py, over frames."""

from tests.consume.test_ordered import *  # noqa: F403
