"""What an engine holds besides its data. The harness would find what it holds too long."""

from __future__ import annotations

import pytest

from crash_tests.by_hand import WORKLOADS
from crash_tests.engines import PATH, abandon, open_engine
from crash_tests.explore import Depth, Explorer
from crash_tests.mutants import caught
from crash_tests.old_copies import check_old_copies
from crash_tests.oracle import Violation
from crash_tests.planted_mending import MENDING
from crash_tests.resources import Door, check_files
from fmq.testing import CrashDisk

FEW = (
    "a relocation forgets what is reserved",
    "a prepare reserves no room for its relocation",
    "a follower believes a checkpoint that is ahead of it",
    "a follower that starts over keeps its old files",
)


def test_a_deleted_file_that_is_open_is_found() -> None:
    door = Door(CrashDisk())
    directory = door.directory(PATH, make=True)
    file = directory.create("file")
    check_files(door)
    directory.remove("file")
    with pytest.raises(Violation, match=r"I17.*data/file"):
        check_files(door)
    file.close()
    check_files(door)


def test_a_file_that_is_open_in_a_closed_directory_is_found() -> None:
    door = Door(CrashDisk())
    directory = door.directory(PATH, make=True)
    file = directory.create("file")
    directory.close()
    with pytest.raises(Violation, match=r"I17.*data/file"):
        check_files(door)
    file.close()
    check_files(door)


def test_a_step_that_does_not_end_is_found() -> None:
    """An engine that goes on writing is stopped, and the harness says in which step."""
    run = Explorer(WORKLOADS["roll"]).start()
    run.step_operations_max = 8
    with pytest.raises(Violation, match=r"I18: step 0 does not end"):
        run.go()
    abandon(run.engine)


def test_recovery_is_crashed_before_each_of_its_operations() -> None:
    """In a workload by hand, recovery is crashed after each kill. What each second crash leaves is
    tried, too.
    """
    once = Explorer(WORKLOADS["send"], depth=Depth(full=0.0))
    twice = Explorer(WORKLOADS["send"], depth=Depth(full=0.0, twice=1e-9))
    assert not once.explore().failures
    assert not twice.explore().failures
    assert twice.tally.all_states > 2 * once.tally.all_states


@pytest.mark.parametrize("name", ["roll", "retention-of-several", "relocation"])
def test_a_sealed_segment_of_another_future_is_refused(name: str) -> None:
    depth = Depth(full=0.0, states_max=1, chain=False, futures=True)
    tally = Explorer(WORKLOADS[name], depth=depth).explore()
    assert not tally.failures, tally.failures[0]


@pytest.mark.parametrize("name", ["send", "roll", "retention-of-several", "never"])
def test_an_old_copy_of_the_last_segment_is_refused_after_a_kill(name: str) -> None:
    check_old_copies(Explorer(WORKLOADS[name]).start)


def test_a_later_answer_changes_no_earlier_promise() -> None:
    """Copies of an oracle belong to different futures. A message may have different places
    in them.
    """
    run = Explorer(WORKLOADS["two-phase"]).start()
    assert run.go()
    before, after = run.oracle, run.oracle.copy()
    name = next(name for name, unit in before.units.items() if unit.offsets)
    (lane, *_), told = before.units[name].offsets, before.units[name].offsets.copy()
    after._stands(name, lane, 77, 7777)
    assert before.units[name].offsets == told
    assert before.promises() != after.promises()
    abandon(run.engine)


@pytest.mark.parametrize("name", FEW)
def test_a_bug_planted_from_outside_is_caught(name: str) -> None:
    """These are found soon. `python -m crash_tests mutants` plants them all."""
    (mutant,) = [mutant for mutant in MENDING if mutant.name == name]
    assert caught(mutant)


def test_an_engine_that_is_closed_has_closed_its_files() -> None:
    door = Door(CrashDisk())
    engine = open_engine(door, Explorer(WORKLOADS["send"]).start().options)
    engine.send("a", b"x")
    engine.close()
    check_files(door)
