"""The tests of tests/feedback/test_asking.py, over frames."""

from tests.feedback.test_asking import *  # noqa: F403

# It asks while the engine writes, and one thread serves all clients.
del test_a_transaction_is_asked_about_while_it_is_relocated  # noqa: F821
