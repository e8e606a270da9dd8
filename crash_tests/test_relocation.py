"""Crashes while an old undecided transaction is written again at the end."""

import pytest

from crash_tests.by_hand import WORKLOADS
from crash_tests.engines import abandon
from crash_tests.explore import Depth, Explorer
from crash_tests.run import Run
from crash_tests.suite import SEED, one_of


@pytest.mark.parametrize("name", ["relocation", "relocation-of-acks"])
def test_a_crash_inside_a_relocation_leaves_the_transaction_undecided_once(name: str) -> None:
    """The old records count until the new ones are whole. Retention keeps what is needed."""
    few = Depth(full=0.02, states_max=10, chain=False, every=one_of(6))
    tally = Explorer(WORKLOADS[name], SEED, few).explore()
    assert not tally.failures, tally.failures[0]


def test_the_workload_of_relocations_relocates_each_by_itself() -> None:
    """It relocates the older transaction first, with a checkpoint in between. Otherwise it would
    test nothing.
    """
    seen: list[list[str]] = []
    run = Explorer(WORKLOADS["relocation"]).start()

    def note(run: Run) -> None:
        assert run.engine is not None
        undecided = sorted(run.engine.undecided(), key=lambda tx: tx.position)
        seen.append([tx.tx_id for tx in undecided])

    assert run.go(note)
    abandon(run.engine)
    assert ["t1", "t2"] in seen
    assert ["t2", "t1"] in seen
