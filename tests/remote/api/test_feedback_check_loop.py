"""The tests of tests/feedback/test_check_loop.py, over frames."""

from tests.feedback.test_check_loop import *  # noqa: F403

# A connection in memory serves one thread.
del test_a_loop_ends_when_it_is_stopped  # noqa: F821
del test_a_loop_ends_with_the_engine  # noqa: F821
del test_a_loop_that_cannot_ask_pauses_before_it_tries_again  # noqa: F821
