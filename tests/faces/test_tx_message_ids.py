"""The tests of tests/tx/test_message_ids.py, on each face."""

from tests.tx.test_message_ids import *  # noqa: F403
