"""The tests of tests/consume/test_members.py, over frames."""

from tests.consume.test_members import *  # noqa: F403

# The engine process cannot call a function of its client.
del test_a_strategy_of_ones_own  # noqa: F821
del test_a_strategy_that_gives_a_queue_twice_is_refused  # noqa: F821
