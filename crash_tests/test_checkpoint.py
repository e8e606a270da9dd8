"""Crashes inside checkpoints, and what a checkpoint may claim."""

from crash_tests.by_hand import WORKLOADS
from crash_tests.explore import Depth, Explorer


def test_a_crash_inside_a_checkpoint_costs_nothing() -> None:
    """One transaction is decided and one is open during it. Recovery begins low enough for both."""
    tally = Explorer(WORKLOADS["checkpoint"], depth=Depth(full=0.1)).explore()
    assert not tally.failures, tally.failures[0]
