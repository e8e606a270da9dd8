"""What is remembered of a disk, and of a recovery, so that it is not read again."""

from itertools import islice

import pytest

from crash_tests.by_hand import WORKLOADS
from crash_tests.engines import engine_on, let_go, options_of, recover_on
from crash_tests.explore import Explorer
from crash_tests.look import look
from crash_tests.memory import Memory, Outcome, opened_on
from crash_tests.opening import Opening
from crash_tests.oracle import Violation


def test_a_disk_that_was_opened_before_shows_the_same_again() -> None:
    """Otherwise the memory would belong to another disk. Each disk is opened only once."""
    memory = Memory()
    opening = Opening(options_of(WORKLOADS["ack"]), memory)
    for _, moment in islice(Explorer(WORKLOADS["ack"]).moments(), 5, None, 6):
        for disk in moment.disk.states():
            opening.check(disk.after_kill(), moment.oracle)
            remembered = memory.seen(disk.fingerprint(), moment.oracle)
            assert remembered is not None
            recoveries = memory.recoveries
            opening.check(disk.after_kill(), moment.oracle)
            assert memory.recoveries == recoveries
            again = opening.open(disk.after_kill(), moment.oracle).seen
            assert again.lanes == remembered.lanes
            assert again.undecided == remembered.undecided
            assert again.outcomes.items() <= remembered.outcomes.items()
            assert again.delivered.items() <= remembered.delivered.items()


def test_a_disk_that_was_seen_before_is_checked_for_later_promises() -> None:
    """The memory has what a disk shows, not that the check passed: later more was promised."""
    memory = Memory()
    opening = Opening(options_of(WORKLOADS["send"]), memory)
    (_, early), *_, (_, late) = Explorer(WORKLOADS["send"]).moments()
    disk = early.disk.after_kill()
    opening.check(disk.after_kill(), early.oracle)
    with pytest.raises(Violation, match="I1"):
        opening.check(disk.after_kill(), late.oracle)
    assert memory.recoveries == 1


def test_recoveries_with_equal_outcomes_show_equal_messages() -> None:
    """Only the first of several such recoveries is read, unless it writes something afterwards."""
    workload = WORKLOADS["ack"]
    options, memory = options_of(workload), Memory()
    recoveries = remembered = 0
    for _, moment in islice(Explorer(workload).moments(), 5, None, 6):
        for disk in moment.disk.states():
            start = recover_on(disk, options)
            outcome, operations = Outcome(disk, start.locked.found), disk.operations
            disk.opened.clear()
            engine = engine_on(start, options)
            oracle = moment.oracle
            seen = look(engine, oracle.tx_names(), oracle.acking())
            known = memory.shown(outcome, oracle)
            if known is not None:
                assert (known.lanes, known.undecided) == (seen.lanes, seen.undecided)
                assert seen.outcomes.items() <= known.outcomes.items()
                assert seen.delivered.items() <= known.delivered.items()
                assert disk.operations == operations
                remembered += 1
            elif disk.operations == operations:
                memory.note(outcome, opened_on(disk), seen)
            let_go(engine, disk)
            recoveries += 1
    assert recoveries / 4 < remembered < recoveries


def test_outcomes_of_a_recovery_differ_if_any_of_its_results_differs() -> None:
    """Change one thing at a time: a time, a checksum, or a byte of a file that is opened."""
    (_, moment), *_ = Explorer(WORKLOADS["ack"]).moments()
    disk = moment.disk.after_kill()
    found = recover_on(disk, options_of(WORKLOADS["ack"])).locked.found
    name = found.segments[-1].name

    def key(files: tuple[str, ...] = (name,)) -> bytes | None:
        return Outcome(disk, found).with_files(files)

    keys = {key()}
    found.ledger.last_us += 1
    keys.add(key())
    found.segments[-1].chain += 1
    keys.add(key())
    found = found._replace(part_size=found.part_size + 1)
    keys.add(key())
    before = key(())
    directory = disk.directory("data", make=False)
    directory.open(name, write=True).write(4000, (b"x",), sync=True)
    keys.add(key())
    assert len(keys) == 5
    assert key(()) == before
    directory.create("another").close()
    assert key(()) != before
    assert key(("nowhere",)) is None
