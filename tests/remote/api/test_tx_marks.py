"""The tests of tests/tx/test_marks.py, over frames."""

from tests.tx.test_marks import *  # noqa: F403
