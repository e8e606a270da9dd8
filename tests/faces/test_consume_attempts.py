"""The tests of tests/consume/test_attempts.py, on each face."""

from tests.consume.test_attempts import *  # noqa: F403
