"""The tests of tests/consume/test_pauses.py, on each face."""

from tests.consume.test_pauses import *  # noqa: F403
