"""The tests of tests/tx/test_typed_topics.py, on each face."""

from tests.tx.test_typed_topics import *  # noqa: F403
