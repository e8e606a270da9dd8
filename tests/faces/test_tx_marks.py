"""The tests of tests/tx/test_marks.py, on each face."""

from tests.tx.test_marks import *  # noqa: F403
