"""The tests of tests/feedback/test_settle.py, over frames."""

from tests.feedback.test_settle import *  # noqa: F403

# A connection in memory serves one thread.
del test_settle_waits_for_the_answer_of_another_caller  # noqa: F821
del test_an_unknown_of_another_caller_ends_the_wait  # noqa: F821
del test_settle_waits_for_a_decision_by_hand_and_reports_it  # noqa: F821
del test_the_end_of_the_engine_ends_settle  # noqa: F821

# It decides in the middle of another call of the same thread.
del test_settle_notices_an_end_just_before_it_waits  # noqa: F821
