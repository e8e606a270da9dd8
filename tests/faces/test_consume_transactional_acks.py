"""The tests of tests/consume/test_transactional_acks.py, on each face."""

from tests.consume.test_transactional_acks import *  # noqa: F403
