"""The tests of tests/tx/test_arguments.py, on each face."""

from tests.tx.test_arguments import *  # noqa: F403
