"""The tests of tests/consume/test_advancing.py, over frames."""

from tests.consume.test_advancing import *  # noqa: F403

# The server in memory is for one thread, and this one has two workers.
del test_a_group_that_keeps_order_gets_the_next_of_a_key_after_the_ack  # noqa: F821
