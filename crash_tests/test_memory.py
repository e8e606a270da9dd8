"""What is remembered of a disk, and of a recovery, instead of asking again."""

from dataclasses import replace
from itertools import islice

import pytest

from crash_tests.by_hand import WORKLOADS
from crash_tests.engines import engine_on, let_go, options_of, recover_on
from crash_tests.explore import Explorer
from crash_tests.look import look
from crash_tests.memory import Memory, outcome_of
from crash_tests.opening import Opening
from crash_tests.oracle import Seen, Violation


def test_a_disk_that_was_opened_before_shows_the_same_again() -> None:
    """Or else what is remembered would be another disk's; and each is opened only once."""
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


def test_other_promises_for_the_same_disk_are_checked() -> None:
    """It is remembered what a disk shows, and not that it was enough: it may not be, later."""
    memory = Memory()
    opening = Opening(options_of(WORKLOADS["send"]), memory)
    (_, early), *_, (_, late) = Explorer(WORKLOADS["send"]).moments()
    disk = early.disk.after_kill()
    opening.check(disk.after_kill(), early.oracle)
    with pytest.raises(Violation, match="I1"):
        opening.check(disk.after_kill(), late.oracle)
    assert memory.recoveries == 1


def test_recoveries_that_come_to_the_same_show_the_same() -> None:
    """As only the first of them is asked, if it then writes nothing."""
    workload = WORKLOADS["ack"]
    shown: dict[str, Seen] = {}
    recoveries = 0
    for _, moment in islice(Explorer(workload).moments(), 5, None, 6):
        for disk in moment.disk.states():
            start = recover_on(disk, options_of(workload))
            outcome = outcome_of(disk, start.claim.found)
            engine = engine_on(start, options_of(workload))
            seen = look(engine, ["t1", "t2"], {"g": ["a", "b"]})
            let_go(engine, disk)
            assert shown.setdefault(outcome, seen) == seen
            recoveries += 1
    assert len(shown) < recoveries


def test_whatever_recovery_hands_over_tells_outcomes_apart() -> None:
    """Another offset, another undecided transaction: each alone makes another outcome."""
    (_, moment), *_ = Explorer(WORKLOADS["ack"]).moments()
    disk = moment.disk.after_kill()
    found = recover_on(disk, options_of(WORKLOADS["ack"])).claim.found
    outcomes = {outcome_of(disk, found)}
    found.ledger.last_us += 1
    outcomes.add(outcome_of(disk, found))
    found.segments[-1].chain += 1
    outcomes.add(outcome_of(disk, found))
    outcomes.add(outcome_of(disk, found._replace(part_size=found.part_size + 1)))
    assert len(outcomes) == 4
    report = replace(found.report, cut_bytes=7)
    assert outcome_of(disk, found._replace(report=report)) == outcome_of(disk, found)
