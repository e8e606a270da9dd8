"""The tests of tests/test_engine.py, on each face."""

from tests.test_engine import *  # noqa: F403
