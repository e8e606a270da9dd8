"""The tests of tests/consume/test_reject_by_place.py, on each face."""

from tests.consume.test_reject_by_place import *  # noqa: F403
