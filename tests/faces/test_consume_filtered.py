"""The tests of tests/consume/test_filtered.py, on each face."""

from tests.consume.test_filtered import *  # noqa: F403
