"""The tests of tests/consume/test_attempts.py, over frames."""

from tests.consume.test_attempts import *  # noqa: F403
