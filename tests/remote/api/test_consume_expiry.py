"""The tests of tests/consume/test_expiry.py, over frames."""

from tests.consume.test_expiry import *  # noqa: F403
