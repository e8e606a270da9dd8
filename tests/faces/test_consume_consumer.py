"""The tests of tests/consume/test_consumer.py, on each face."""

from tests.consume.test_consumer import *  # noqa: F403
