"""Retention that a crash or a full disk interrupts, at each of its steps."""

from __future__ import annotations

import errno
from contextlib import suppress
from typing import Any

import pytest

import fmq
from fmq import Engine
from fmq.errors import Damaged, StorageFull
from fmq.testing import FaultDisk, PowerLoss
from tests.retention.sending import KEEP, first_of, send
from tests.small import (
    CrashDisk,
    FakeClock,
    bodies,
    check,
    content,
    opened,
    remove,
    segments,
)


def test_a_crash_at_any_step_of_retention_loses_no_message() -> None:
    """Stop the power at every operation of a send that drops segments, and check every state."""
    disk = CrashDisk()
    with opened(disk, retain_bytes=KEEP) as engine:
        sent = 0
        while engine.stats().first_position == 0:
            first = disk.operations
            engine.send("t", b"x" * 500)
            sent += 1
        last = disk.operations
    assert last - first > 8
    floors = set()
    for crash_at in range(first, last):
        disk = CrashDisk(crash_at=crash_at)
        with pytest.raises(PowerLoss), opened(disk, retain_bytes=KEEP) as engine:
            send(engine, sent)
        for state in disk.states(crash_at):
            with opened(state) as engine:
                (info,) = engine.queues("t")
                floors.add(info.first)
                assert info.next >= sent - 1
                assert len(bodies(engine, "t", offset=info.first)) == info.next - info.first
                assert engine.send("t", b"").offset == info.next
            check(state)
    assert len(floors) == 2, "some crashed before and some behind the point of no return"


def test_an_interrupted_deletion_is_finished_at_the_next_open() -> None:
    """The segments below the floor that a crash left, and their indexes, are removed then."""
    disk = CrashDisk()
    with opened(disk, retain_bytes=KEEP) as engine:
        send(engine, 20)
        before = content(disk)
        while engine.stats().first_position == 0:
            before = content(disk)
            engine.send("t", b"x" * 500)
        left = disk.after_kill()
    directory = left.directory("data", make=False)
    gone = sorted(set(segments_in(before)) - set(segments(left)))
    assert gone
    for name in gone:
        directory.create(name).write(0, (before[name],), sync=True)
    with opened(left) as engine:
        assert not set(gone) & set(segments(left))
        assert engine.queues("t")[0].first > 0
    check(left)


def segments_in(files: dict[str, bytes]) -> list[str]:
    return [name for name in files if name.endswith(".seg")]


def test_a_missing_segment_above_the_floor_is_damage() -> None:
    disk = CrashDisk()
    with opened(disk, retain_bytes=KEEP) as engine:
        send(engine, 60)
    remove(disk, segments(disk)[0])
    remove(disk, *[name for name in content(disk) if name.startswith("checkpoint")])
    with pytest.raises(Damaged, match="missing"):
        opened(disk)
    assert not fmq.check("data", disk=disk).ok


def test_retention_frees_room_on_a_full_disk() -> None:
    """This holds even if the current segment is full: a spare is set aside for the STATE."""
    disk, clock = FaultDisk(CrashDisk()), FakeClock()
    with opened(disk, clock, retain_seconds=60, keep_unread=False) as engine:
        send(engine, 60)
        disk.fail("allocate", error=errno.ENOSPC, persistently=True)
        for size in (500, 100, 0):
            with pytest.raises(StorageFull):
                while True:
                    engine.send("t", b"x" * size)
        before = len(segments(disk))
        assert before > 5
        clock.advance(3600)
        engine.sync()  # all but the one that was being written
        engine.sync()
        assert len(segments(disk)) == engine.stats().segments == 1
        disk.heal()
        engine.send("t", b"there is room")
    check(disk)


def no_room_for_any_file(disk: FaultDisk) -> None:
    for operation in ("create", "allocate"):
        disk.fail(operation, error=errno.ENOSPC, persistently=True)
    disk.fail("write", error=errno.ENOSPC, persistently=True, names="*.part")


def drop_without_room(engine: Engine, disk: FaultDisk, clock: FakeClock) -> None:
    """Fill a disk that then takes no new file, and let retention make room on it."""
    send(engine, 30)
    engine.checkpoint()
    no_room_for_any_file(disk)
    with pytest.raises(StorageFull):
        while True:
            engine.send("t", b"x" * 500)
    clock.advance(3600)
    engine.sync()


BY_AGE: dict[str, Any] = {"retain_seconds": 60, "keep_unread": False}


def test_retention_makes_room_on_a_disk_without_room_for_a_file() -> None:
    """Neither an index nor a checkpoint can be written, and both come later."""
    power, clock = CrashDisk(), FakeClock()
    disk = FaultDisk(power)
    with opened(disk, clock, **BY_AGE) as engine:
        drop_without_room(engine, disk, clock)
        assert len(segments(disk)) == engine.stats().segments <= 3
        assert engine.stats().trouble is not None
        assert len(bodies(engine, "t", offset=first_of(engine))) > 0
        left = power.after_kill()
        disk.heal()
        engine.send("t", b"there is room")
        assert engine.stats().trouble is None
        assert engine.stats().segments == 1
    check(disk)
    check(left)


def test_a_crash_after_a_drop_without_a_checkpoint_loses_nothing() -> None:
    """Crash at each operation from the full disk on, and open every state.

    The newest checkpoint is an older one, and the STATE after it says what was dropped.
    """
    disk, clock = CrashDisk(), FakeClock()
    faulty = FaultDisk(disk)
    with opened(faulty, clock, **BY_AGE) as engine:
        drop_without_room(engine, faulty, clock)
    floors = set()
    removals = [i for i, line in enumerate(disk.history) if line.startswith("remove")]
    for crash_at in range(removals[0] - 4, removals[-1] + 4):
        disk, clock = CrashDisk(crash_at=crash_at), FakeClock()
        faulty = FaultDisk(disk)
        with suppress(PowerLoss), opened(faulty, clock, **BY_AGE) as engine:
            drop_without_room(engine, faulty, clock)
        for state in (*disk.states(crash_at), disk.after_kill()):
            with opened(state) as engine:
                (info,) = engine.queues("t")
                floors.add(info.first)
                assert len(bodies(engine, "t", offset=info.first)) == info.next - info.first
                assert engine.send("t", b"").offset == info.next
            check(state)
    assert len(floors) == 2, "some crashed before and some behind the point of no return"


def test_a_retry_of_retention_writes_no_second_state() -> None:
    """A STATE a second would fill the journal while no messages are sent."""
    disk, clock = FaultDisk(CrashDisk()), FakeClock()
    with opened(disk, clock, retain_seconds=60, checkpoint_bytes=100_000) as engine:
        send(engine, 20)
        engine.checkpoint()
        disk.fail("write", error=errno.EIO, persistently=True, names="*/checkpoint.*")
        clock.advance(3600)
        positions = set()
        for _ in range(5):
            clock.advance(10)
            engine.sync()
            positions.add(engine.stats().position)
        assert engine.stats().segments > 1
        assert len(positions) == 1
        disk.heal()
        engine.sync()
        assert engine.stats().segments == 1
    check(disk)


def test_retention_never_takes_room_reserved_for_decisions() -> None:
    """This holds even if there was no room for a spare of its own."""
    disk, clock = FaultDisk(CrashDisk()), FakeClock()
    with opened(disk, clock) as engine:
        send(engine, 30)
        tx = engine.transaction(tx_id="T")
        tx.send("u", b"x" * 2000)
        tx.prepare()
        disk.fail("allocate", error=errno.ENOSPC, persistently=True)
        with pytest.raises(StorageFull):
            while True:
                engine.send("t", b"x" * 100)
        with pytest.raises(StorageFull):
            while True:
                engine.send("t", b"")
    with opened(disk, clock, retain_seconds=60, keep_unread=False) as engine:
        reserved = engine.stats().spares_reserved
        assert engine.stats().spares == reserved > 0
        clock.advance(3600)
        for _ in range(3):
            engine.sync()
        assert engine.stats().spares == reserved
        assert engine.decide("T", "commit", reason="r" * 1000).messages == 1
    disk.heal()
    check(disk)
