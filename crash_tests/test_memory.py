"""What is remembered of a disk, instead of opening it again."""

from itertools import islice

import pytest

from crash_tests.by_hand import WORKLOADS
from crash_tests.engines import options_of
from crash_tests.explore import Explorer
from crash_tests.memory import Memory
from crash_tests.opening import Opening
from crash_tests.oracle import Violation


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
