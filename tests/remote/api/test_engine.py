"""The tests of tests/test_engine.py, over frames."""

from tests.test_engine import *  # noqa: F403
