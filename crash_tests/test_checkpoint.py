"""Crashes inside checkpoints, and what a checkpoint may claim."""

from crash_tests.by_hand import WORKLOADS
from crash_tests.explore import Depth, Explorer
from crash_tests.suite import SEED, one_of


def test_a_crash_inside_a_checkpoint_costs_nothing() -> None:
    """One transaction is decided and one is open during it. Recovery begins low enough for both."""
    tally = Explorer(WORKLOADS["checkpoint"], SEED, Depth(full=0.1, every=one_of(6))).explore()
    assert not tally.failures, tally.failures[0]
