"""The tests of tests/consume/test_group_infos.py, over frames."""

from tests.consume.test_group_infos import *  # noqa: F403
