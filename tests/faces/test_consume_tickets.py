"""The tests of tests/consume/test_tickets.py, on each face."""

from tests.consume.test_tickets import *  # noqa: F403
