"""The tests of tests/consume/test_group_infos.py, on each face."""

from tests.consume.test_group_infos import *  # noqa: F403
