"""The tests of tests/consume/test_ordered.py, over frames."""

from tests.consume.test_ordered import *  # noqa: F403

# They look into the lines of an engine of their own.
del test_a_release_while_another_thread_looks_strands_no_message  # noqa: F821
del test_an_ack_while_another_thread_looks_strands_no_message  # noqa: F821
del test_what_is_acked_while_another_thread_looks_holds_up_no_later_message  # noqa: F821
del test_a_skip_before_an_attempt_is_counted_strands_no_message  # noqa: F821
