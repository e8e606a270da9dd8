"""The tests of tests/consume/test_topics.py, over frames."""

from tests.consume.test_topics import *  # noqa: F403

# Over frames the chores are nobody's: what retention does is not seen here.
del test_a_topic_keeps_messages_for_its_own_time  # noqa: F821
del test_a_group_at_the_start_is_the_same_after_a_restart_and_a_trim  # noqa: F821

# The engine process makes a topic as its options say.
del test_a_transaction_that_has_collected_for_a_deleted_topic  # noqa: F821
