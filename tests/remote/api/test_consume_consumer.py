"""The tests of tests/consume/test_consumer.py, over frames."""

from tests.consume.test_consumer import *  # noqa: F403

# It polls while the engine reads, and one thread serves all clients.
del test_a_poll_that_fails_after_its_lease_takes_nothing_from_the_next_owner  # noqa: F821
