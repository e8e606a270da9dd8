"""The tests of tests/tx/test_arguments.py, over frames."""

from tests.tx.test_arguments import *  # noqa: F403
