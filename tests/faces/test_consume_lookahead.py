"""The tests of tests/consume/test_lookahead.py, on each face."""

from tests.consume.test_lookahead import *  # noqa: F403
