"""Crashes while the journal goes on in a new segment."""

import pytest

from crash_tests.by_hand import WORKLOADS
from crash_tests.explore import Depth, Explorer
from crash_tests.suite import SEED, one_of


@pytest.mark.parametrize("name", ["roll", "roll-without-a-checkpoint"])
def test_a_crash_inside_a_roll_loses_no_segment(name: str) -> None:
    """The name of the new segment is durable before any append in it is acknowledged."""
    tally = Explorer(WORKLOADS[name], SEED, Depth(full=0.1, every=one_of(6))).explore()
    assert not tally.failures, tally.failures[0]
