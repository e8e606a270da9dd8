"""The tests of tests/consume/test_ordered.py, over frames."""

from tests.consume.test_ordered import *  # noqa: F403

# It looks into the lines of an engine of its own.
del test_an_ack_while_another_thread_polls_strands_no_message  # noqa: F821
