"""Crashes while an old undecided transaction is written again at the end."""

from crash_tests.explore import Depth, Explorer
from crash_tests.workload import WORKLOADS


def test_a_crash_inside_a_relocation_leaves_the_transaction_undecided_once() -> None:
    """The old one stands until the new one is whole, and retention spares what is needed."""
    tally = Explorer(
        WORKLOADS["relocation"], depth=Depth(full=0.02, states_max=10, chain=False)
    ).explore()
    assert not tally.failures, tally.failures[0]
