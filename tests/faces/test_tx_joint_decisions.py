"""The tests of tests/tx/test_joint_decisions.py, on each face."""

from tests.tx.test_joint_decisions import *  # noqa: F403
