"""What waits, on the disk: files that can be built again, and segments that are dropped."""

from __future__ import annotations

import errno
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import fmq
from fmq.testing import CrashDisk, FakeClock, FaultDisk
from fmq.testing.inside import inside
from fmq.tx.ledger.timers import Bounds
from tests.small import bodies, check, content, fill, flip, opened, remove, segments, truncate

FEW = Bounds(near=16, noted=4, runs=2, gone=4)
SMALL = fmq.Options(segment_bytes=4096)
START = datetime(2026, 1, 1, tzinfo=UTC)


def with_few(disk: CrashDisk, clock: FakeClock, **options: Any) -> fmq.Engine:
    """An engine that has few timers in memory."""
    engine = opened(disk, clock, **options)
    inside(engine).ledger.timers.bounds = FEW
    return engine


def due_files(disk: CrashDisk) -> list[str]:
    return sorted(name for name in content(disk) if name.endswith(".due"))


def send_some(engine: fmq.Engine, count: int = 40) -> list[bytes]:
    """Send messages with delays in no order; return their bodies in the order of their times."""
    for number in range(count):
        engine.send("t", b"%d" % number, delay=1 + number * 7 % count)
    return [b"%d" % n for n in sorted(range(count), key=lambda n: (n * 7 % count, n))]


def has_timer_thread(engine: fmq.Engine) -> bool:
    timers = inside(engine).chores.timer_thread
    return timers is not None and timers._thread is not None


def pass_time(engine: Any, clock: FakeClock, seconds: float) -> None:
    clock.advance(seconds)
    engine.sync()


def test_messages_due_far_ahead_are_published_from_files() -> None:
    disk, clock = CrashDisk(), FakeClock()
    with with_few(disk, clock) as engine:
        expected = send_some(engine)
        engine.checkpoint()
        assert due_files(disk)
        for _ in range(8):
            pass_time(engine, clock, 5)
        assert bodies(engine, "t") == expected
    assert not due_files(disk)  # nothing waits, so none is named
    check(disk)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("harm", ["remove", "flip", "truncate", "checkpoints"])
def test_lost_due_files_are_built_again(harm: str, clean: bool) -> None:
    disk, clock = CrashDisk(), FakeClock()
    engine = with_few(disk, clock)
    expected = send_some(engine)
    engine.checkpoint()
    pass_time(engine, clock, 10)
    left = disk if clean else disk.after_kill()
    engine.close()
    for name in due_files(left):
        if harm == "remove":
            remove(left, name)
        elif harm == "flip":
            flip(left, name, 60)
        elif harm == "truncate":
            truncate(left, name, 50)
    if harm == "checkpoints":
        slots = [name for name in content(left) if name.startswith("checkpoint")]
        parts = [name for name in content(left) if name.endswith((".part", ".idx"))]
        remove(left, *slots, *parts, *due_files(left))
    with with_few(left, clock) as engine:
        assert engine.stats().delayed == 30
        pass_time(engine, clock, 30)
        assert bodies(engine, "t") == expected
    check(left)


def test_a_due_file_that_no_checkpoint_names_is_removed() -> None:
    disk, clock = CrashDisk(), FakeClock()
    with with_few(disk, clock) as engine:
        send_some(engine)
    directory = disk.directory("data", make=False)
    directory.create("00000000000000000999.due").close()
    with opened(disk, clock):
        assert "00000000000000000999.due" not in content(disk)


def test_many_due_files_are_merged() -> None:
    disk, clock = CrashDisk(), FakeClock()
    with with_few(disk, clock) as engine:
        for _ in range(12):
            send_some(engine, 10)
            engine.checkpoint()
        assert len(due_files(disk)) <= FEW.runs + 2
        pass_time(engine, clock, 20)
        assert len(bodies(engine, "t")) == 120


# --- retention -----------------------------------------------------------------------------------


@pytest.mark.parametrize("clean", [True, False])
def test_a_waiting_message_is_carried_forward_and_keeps_no_segment(clean: bool) -> None:
    disk, clock = CrashDisk(), FakeClock()
    engine = with_few(disk, clock, retain_bytes=3 * 4096)
    receipts = [
        engine.send("t", b"%d" % n, key="k", headers={"a": "b"}, delay=1000 + n) for n in range(12)
    ]
    for _ in range(4):
        for _ in range(6):
            fill(engine)
        assert len(segments(disk)) < 8
        assert engine.stats().first_position > receipts[-1].position
        assert engine.stats().trouble is None
    assert engine.recall(receipts[5])
    left = disk if clean else disk.after_kill()
    engine.close()
    with with_few(left, clock, retain_bytes=3 * 4096) as engine:
        assert [each.position for each in engine.delayed()] == [
            each.position for each in receipts if each is not receipts[5]
        ]
        assert engine.recall(receipts[6])
        pass_time(engine, clock, 2000)
        found = engine.read("t")
        assert [each.body for each in found] == [b"%d" % n for n in range(12) if n not in (5, 6)]
        assert all((each.key, each.headers) == ("k", {"a": "b"}) for each in found)


def test_due_files_of_carried_messages_are_built_again() -> None:
    disk, clock = CrashDisk(), FakeClock()
    with with_few(disk, clock, retain_bytes=3 * 4096) as engine:
        expected = send_some(engine)
        for _ in range(9):
            fill(engine)
    names = [name for name in content(disk) if not name.endswith((".seg", ".spare"))]
    remove(disk, *(name for name in names if name not in ("LOCK", "quarantine")))
    with with_few(disk, clock, retain_bytes=3 * 4096) as engine:
        pass_time(engine, clock, 100)
        assert bodies(engine, "t") == expected


def test_retain_bytes_does_not_count_waiting_messages() -> None:
    """Else a directory with more of it than the limit would write it again and again."""
    disk, clock = CrashDisk(), FakeClock()
    with with_few(disk, clock, retain_bytes=2 * 4096) as engine:
        for n in range(30):
            engine.send("t", b"%d" % n + bytes(700), delay=1000)
        before = engine.stats().position
        for _ in range(10):
            engine.sync()
        assert engine.stats().position == before
        assert engine.stats().delayed == 30


def test_retention_by_age_counts_from_when_a_message_is_published() -> None:
    disk, clock = CrashDisk(), FakeClock()
    with with_few(disk, clock, retain_seconds=100) as engine:
        engine.send("t", b"1", delay=1000)
        fill(engine)
        fill(engine)
        pass_time(engine, clock, 1000)
        assert bodies(engine, "t") == [b"1"]
        fill(engine)
        pass_time(engine, clock, 90)
        fill(engine)
        assert bodies(engine, "t") == [b"1"]
        pass_time(engine, clock, 200)
        fill(engine)
        engine.sync()
        assert engine.queues("t")[0].first == 1


def test_a_waiting_message_for_a_deleted_topic_is_not_carried_forward() -> None:
    disk, clock = CrashDisk(), FakeClock()
    with with_few(disk, clock, retain_bytes=3 * 4096) as engine:
        for n in range(10):
            engine.send("t", b"%d" % n, delay=1000)
            engine.send("u", b"%d" % n, delay=1000)
        engine.topic("t").delete()
        assert engine.stats().delayed == 20
        for _ in range(9):
            fill(engine)
        assert engine.stats().delayed == 10
        engine.send("t", b"new")
        pass_time(engine, clock, 1000)
        assert bodies(engine, "t") == [b"new"]
        assert len(bodies(engine, "u")) == 10


def test_a_smaller_segment_after_reopening_can_hold_waiting_messages() -> None:
    disk, clock = CrashDisk(), FakeClock()
    with opened(disk, clock, segment_bytes=16 * 4096) as engine:
        engine.send("t", b"x" * 20_000, delay=10)
    with opened(disk, clock, segment_bytes=4096) as engine:
        pass_time(engine, clock, 10)
        assert bodies(engine, "t") == [b"x" * 20_000]


# --- readers, trouble ----------------------------------------------------------------------------


def test_a_reader_sees_a_message_once_it_is_published() -> None:
    disk, clock = CrashDisk(), FakeClock()
    with opened(disk, clock) as engine:
        engine.send("t", b"1", delay=10)
        engine.checkpoint()
        with fmq.open("data", read_only=True, disk=disk) as reader:
            assert reader.read("t") == []
            pass_time(engine, clock, 10)
            engine.checkpoint()
            assert [each.body for each in reader.read("t")] == [b"1"]


def test_an_unreadable_delayed_message_stays_and_hides_no_other() -> None:
    disk, clock = CrashDisk(), FakeClock()
    with opened(disk, clock) as engine:
        bad = engine.send("t", b"bad", delay=10)
        engine.send("t", b"good", delay=10)
        flip(disk, segments(disk)[0], bad.position + 60)
        pass_time(engine, clock, 10)
        engine.sync()
        assert bodies(engine, "t") == [b"good"]
        assert "cannot be read" in str(engine.stats().trouble)
        assert engine.stats().delayed == 1
        flip(disk, segments(disk)[0], bad.position + 60)
    with opened(disk, clock) as engine:
        engine.sync()
        assert bodies(engine, "t") == [b"good", b"bad"]


def test_a_full_disk_makes_messages_late_and_loses_none() -> None:
    memory, clock = CrashDisk(), FakeClock()
    disk = FaultDisk(memory)
    with fmq.open("data", SMALL, disk=disk, clock=clock, background=False) as engine:
        for n in range(40):
            engine.send("t", b"%d" % n + bytes(300), delay=10)
        disk.fail("allocate", error=errno.ENOSPC, persistently=True)
        clock.advance(10)
        for _ in range(4):
            engine.sync()
        assert engine.stats().delayed > 0
        assert "no room to publish" in str(engine.stats().trouble)
        disk.heal()
        engine.sync()
        engine.sync()
        assert engine.stats().delayed == 0
        assert [int(each.body.rstrip(b"\0")) for each in engine.read("t")] == [*range(40)]
        assert engine.stats().trouble is None


# --- with threads --------------------------------------------------------------------------------


def test_a_thread_publishes_due_messages() -> None:
    disk, clock = CrashDisk(), FakeClock()
    with fmq.open("data", disk=disk, clock=clock) as engine:
        engine.send("t", b"2", delay=20)
        engine.send("t", b"1", delay=10)
        clock.until(lambda: has_timer_thread(engine))
        clock.advance(10)
        clock.until(lambda: len(engine.read("t")) == 1)
        clock.advance(10)
        clock.until(lambda: len(engine.read("t")) == 2)
        assert [each.body for each in engine.read("t")] == [b"1", b"2"]
    clock.advance(60)
    with fmq.open("data", disk=disk, clock=clock) as engine:
        receipt = engine.send("t", b"3", delay=10)
        assert engine.recall(receipt)


def test_a_thread_notices_that_the_clock_was_set_forward() -> None:
    disk, clock = CrashDisk(), FakeClock()
    with fmq.open("data", disk=disk, clock=clock) as engine:
        engine.send("t", b"1", deliver_at=START + timedelta(days=365))
        clock.until(lambda: has_timer_thread(engine))
        clock.set_wall_clock(clock.time_us() + 366 * 24 * 3600 * 1_000_000)
        clock.advance(5)
        clock.until(lambda: engine.read("t"))


def test_an_engine_without_delays_has_no_thread_for_them() -> None:
    disk, clock = CrashDisk(), FakeClock()
    with fmq.open("data", disk=disk, clock=clock) as engine:
        engine.send("t", b"1")
        assert not has_timer_thread(engine)
