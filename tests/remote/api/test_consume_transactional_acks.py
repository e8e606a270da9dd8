"""The tests of tests/consume/test_transactional_acks.py, over frames."""

from tests.consume.test_transactional_acks import *  # noqa: F403
