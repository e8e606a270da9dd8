"""The tests of tests/consume/test_topics.py, on each face."""

from tests.consume.test_topics import *  # noqa: F403
