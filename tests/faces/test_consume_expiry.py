"""The tests of tests/consume/test_expiry.py, on each face."""

from tests.consume.test_expiry import *  # noqa: F403
