"""The tests of tests/tx/test_outcomes.py, over frames."""

from tests.tx.test_outcomes import *  # noqa: F403

# It closes the client while the same thread waits for an answer.
del test_closing_the_engine_during_outcome_raises_closed  # noqa: F821
