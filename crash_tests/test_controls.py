"""The harness fails where it must. Otherwise it would prove nothing that it finds no failure."""

import pytest

from crash_tests.by_hand import WORKLOADS
from crash_tests.engines import abandon
from crash_tests.explore import Depth, Explorer
from crash_tests.failure import load
from crash_tests.mutants import ROOT, caught
from crash_tests.planted import MUTANTS
from crash_tests.shrink import shrink

FEW = (
    "acknowledge before the sync",
    "readers elsewhere are told before the sync",
    "delivery before the sync",
    "tail in place",
    "an append that is cut in its middle",
    "a checkpoint in one slot",
    "a failed write is no reason to stop",
)


def test_a_disk_that_only_pretends_to_sync_is_found_out(tmp_path) -> None:
    """With syncs that do nothing the first acknowledged message is lost, and the failure is
    written down so that it can be seen again.
    """
    depth = Depth(honest=False)
    (failure,) = Explorer(WORKLOADS["send"], depth=depth).explore().failures
    assert failure.violation.invariant in ("I0", "I1")
    smaller = shrink(failure, depth, seconds=300)
    assert len(smaller.workload.steps) <= len(failure.workload.steps)
    smaller.save(tmp_path / "failure.json")
    again = Explorer(smaller.workload, depth=depth).replay(load(tmp_path / "failure.json"))
    assert again is not None
    assert again.invariant == failure.violation.invariant


@pytest.mark.parametrize("name", WORKLOADS)
def test_no_step_of_a_workload_made_by_hand_is_refused(name: str) -> None:
    """A refused step would test nothing, without a notice."""
    run = Explorer(WORKLOADS[name]).start()
    assert run.go()
    abandon(run.engine)
    assert not run.refused


@pytest.mark.parametrize("name", FEW)
def test_a_planted_bug_is_caught(name: str) -> None:
    """These are found soon. `python -m crash_tests mutants` plants them all."""
    (mutant,) = [mutant for mutant in MUTANTS if mutant.name == name]
    assert caught(mutant)


def test_every_planted_bug_still_has_its_one_place() -> None:
    """If you change a line with a planted bug, plant the bug again."""
    sources = [path.read_text() for path in (ROOT / "fmq").rglob("*.py")]
    for mutant in MUTANTS:
        for old, _ in ((mutant.old, mutant.new), *mutant.more):
            assert sum(source.count(old) for source in sources) == 1, (mutant.name, old)
