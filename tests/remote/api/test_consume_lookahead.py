"""The tests of tests/consume/test_lookahead.py, over frames."""

from tests.consume.test_lookahead import *  # noqa: F403
