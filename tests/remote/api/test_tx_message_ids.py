"""The tests of tests/tx/test_message_ids.py, over frames."""

from tests.tx.test_message_ids import *  # noqa: F403
