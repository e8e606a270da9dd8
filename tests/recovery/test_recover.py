"""From a directory to a running engine: idempotent, interruptible, durable before it is shown."""

from __future__ import annotations

import errno

import pytest

from fmq.errors import Damaged, StorageFull
from fmq.testing import FaultDisk, PowerLoss
from tests.recovery.planting import tail_of
from tests.recovery.sights import OPTIONS, finished, interrupted, sight, work
from tests.small import (
    CrashDisk,
    bodies,
    check,
    content,
    fill,
    opened,
    overwrite,
    remove,
    segments,
)


def torn() -> CrashDisk:
    """Return what a power cut in the middle of a write leaves: a tail to be copied and cut."""
    disk = interrupted()
    tail = tail_of(disk)
    overwrite(disk, tail.name, tail.end + 100, b"torn" * 20)
    return disk


def journal(disk: CrashDisk) -> dict[str, bytes]:
    return {name: data for name, data in content(disk).items() if name.endswith(".seg")}


def test_recovery_run_twice_gives_the_same_state_and_the_same_journal() -> None:
    disk = torn()
    with opened(disk, **OPTIONS) as engine:
        assert engine.stats().recovery.cut_bytes == 180
        assert engine.stats().recovery.copied
        again = disk.after_kill()
        once = journal(disk)
    seen = sight(again.after_kill())
    assert journal(again) == once
    assert sight(again) == seen == sight(disk)


def test_recovery_interrupted_anywhere_and_run_again_gives_the_same() -> None:
    """Stop the power at every operation of a recovery, and recover from every state it may leave.

    The cut bytes are kept aside in every case.
    """
    whole = torn().after_kill()
    with opened(whole, **OPTIONS):
        operations, expected = whole.operations, journal(whole)
    expected_sight = sight(whole)
    for crash_at in range(operations):
        disk = torn().after_kill(crash_at=crash_at)
        with pytest.raises(PowerLoss), opened(disk, **OPTIONS):
            pass
        for state in disk.states(crash_at):
            assert sight(state) == expected_sight, (crash_at, state.loss)
            assert journal(state) == expected, (crash_at, state.loss)
            kept = state.directory("data", make=False).subdirectory("quarantine", make=False)
            assert 180 in [kept.open(name).size() for name in kept.names()]


def test_recovered_messages_are_durable_before_they_are_visible() -> None:
    """Kill, recover, deliver, cut the power: everything delivered must be there.

    A kill leaves bytes that were never synced. Only a copy makes them durable.
    """
    for crash_at in range(60):
        disk = CrashDisk(crash_at=crash_at)
        try:
            with opened(disk, **OPTIONS) as engine:
                work(engine)
        except PowerLoss:
            pass
        killed = disk.after_kill()
        with opened(killed, **OPTIONS) as engine:
            delivered = {info: bodies(engine, info.topic, info.queue) for info in engine.queues()}
            undecided = engine.undecided()
            states = list(killed.states(crash_at))
        for state in states:
            with opened(state, **OPTIONS) as engine:
                for info, expected in delivered.items():
                    assert bodies(engine, info.topic, info.queue)[: len(expected)] == expected
                assert engine.undecided() == undecided


def test_opening_after_a_failed_sync_does_not_trust_the_page_cache() -> None:
    """The bytes can be read and later syncs succeed, but a power cut still loses them."""
    crash = CrashDisk()
    disk = FaultDisk(crash)
    engine = opened(disk)
    engine.send("t", b"0")
    disk.fail("write", names="*.seg", spoils=True)
    with pytest.raises(Exception, match="stopped at an error"):
        engine.send("t", b"1")
    engine.close()
    disk.heal()
    with opened(disk) as engine:
        shown = bodies(engine, "t")
        assert shown[:1] == [b"0"]
        assert engine.stats().recovery.copied
        engine.send("t", b"2")
        states = list(crash.states())
    for state in states:
        with opened(state) as engine:
            assert bodies(engine, "t") == [*shown, b"2"]


def test_a_directory_that_was_closed_cleanly_is_not_copied() -> None:
    disk = finished()
    before = content(disk)
    with opened(disk, **OPTIONS) as engine:
        report = engine.stats().recovery
        assert (report.clean, report.copied, report.cut_bytes) == (True, False, 0)
    assert journal(disk) == {name: data for name, data in before.items() if name.endswith(".seg")}


def test_a_full_disk_in_recovery_changes_nothing() -> None:
    crash = torn()
    remove(crash, *[name for name in content(crash) if name.endswith(".spare")])
    before = journal(crash)
    disk = FaultDisk(crash)
    disk.fail("allocate", error=errno.ENOSPC, persistently=True)
    with pytest.raises(StorageFull, match="Nothing of the journal was changed"):
        opened(disk, **OPTIONS)
    assert journal(crash) == before
    disk.heal()
    with opened(disk, **OPTIONS) as engine:
        assert bodies(engine, "t")
    check(crash)


@pytest.mark.parametrize("operation", ["read", "open"])
def test_a_read_error_is_never_taken_for_the_end_of_the_journal(operation: str) -> None:
    """Fail each read of a recovery in turn. It raises, or shows the same as without the error."""
    crash = interrupted()
    expected = sight(crash.after_kill())
    before = journal(crash)
    counting = FaultDisk(crash.after_kill())
    with opened(counting, **OPTIONS):
        reads = counting.count(operation)  # type: ignore[arg-type]
    for nth in range(reads):
        again = crash.after_kill()
        disk = FaultDisk(again)
        disk.fail(operation, nth=nth)  # type: ignore[arg-type]
        try:
            opened(disk, **OPTIONS).close()
        except OSError:
            assert journal(again) == before
        assert sight(again) == expected


# --- missing and foreign segments -----------------------------------------------------------------


@pytest.mark.parametrize("checkpoints", [False, True])
@pytest.mark.parametrize("number", [0, 1, -1])
def test_a_missing_segment_is_refused_and_named(number: int, checkpoints: bool) -> None:
    disk = finished()
    names = segments(disk)
    assert len(names) >= 3
    remove(disk, names[number])
    if not checkpoints:
        remove(disk, "checkpoint.0", "checkpoint.1")
        if number == -1:
            return  # nothing is left that could tell
    before = content(disk)
    with pytest.raises(Damaged, match="missing"):
        opened(disk, **OPTIONS)
    assert content(disk) == before


def test_two_segments_with_swapped_names_are_refused() -> None:
    disk = finished()
    one, other = segments(disk)[:2]
    directory = disk.directory("data", make=False)
    directory.rename(one, "swap")
    directory.rename(other, one)
    directory.rename("swap", other)
    remove(disk, "checkpoint.0", "checkpoint.1")
    with pytest.raises(Damaged, match="the header belongs to the segment at"):
        opened(disk, **OPTIONS)


def test_a_directory_that_lost_all_segments_is_damaged_and_not_new() -> None:
    disk = finished()
    remove(disk, *segments(disk))
    before = content(disk)
    with pytest.raises(Damaged, match="all segments are missing"):
        opened(disk, **OPTIONS)
    assert content(disk) == before


def test_a_crash_at_any_step_of_a_roll_loses_no_message() -> None:
    """In every state, acknowledged messages are there once and in order."""
    disk = CrashDisk()
    with opened(disk) as engine:
        for _ in range(7):
            engine.send("t", b"x" * 500)
        first = disk.operations
        fill(engine, "t", 500)
        last = disk.operations
    for crash_at in range(first, last):
        disk = CrashDisk(crash_at=crash_at)
        sent = 0
        with pytest.raises(PowerLoss), opened(disk) as engine:
            while True:
                engine.send("t", b"x" * 500)
                sent += 1
        for state in disk.states(crash_at):
            with opened(state) as engine:
                (info,) = engine.queues("t")
                assert info.next in (sent, sent + 1)
                assert engine.send("t", b"next").offset == info.next
            check(state)
