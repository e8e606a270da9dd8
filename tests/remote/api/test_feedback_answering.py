"""The tests of tests/feedback/test_answering.py, over frames."""

from tests.feedback.test_answering import *  # noqa: F403

# The process of an engine that has failed ends, and the next one asks again.
del test_a_failed_engine_gives_no_question_and_takes_no_answer  # noqa: F821
