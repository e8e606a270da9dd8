"""Which segments retention drops, by bytes and by age, and what is left to be read."""

from __future__ import annotations

from typing import Any

import pytest

import fmq
from fmq import Options
from fmq.errors import OffsetGone, UnknownTransaction
from fmq.testing import FaultDisk
from tests.retention.sending import KEEP, first_of, send
from tests.small import (
    CrashDisk,
    FakeClock,
    bodies,
    check,
    content,
    fill,
    opened,
    remove,
    segments,
)


def test_retain_bytes_drops_the_oldest_segments() -> None:
    disk = CrashDisk()
    with opened(disk, retain_bytes=KEEP) as engine:
        send(engine, 60)
        stats = engine.stats()
        assert stats.segments == len(segments(disk)) == 3
        assert stats.first_position > 0
        (info,) = engine.queues("t")
        assert 0 < info.first < info.next == 60
        assert stats.messages == info.next - info.first
        assert [message.offset for message in engine.read("t", offset=info.first)] == [
            *range(info.first, 60)
        ]
    check(disk)
    with opened(disk) as engine:
        assert engine.queues("t") == [info]
        assert engine.send("t", b"").offset == 60


def test_retain_seconds_drops_segments_whose_newest_message_is_old() -> None:
    disk, clock = CrashDisk(), FakeClock()
    with opened(disk, clock, retain_seconds=100) as engine:
        send(engine, 8)
        clock.advance(90)
        send(engine, 8)
        assert first_of(engine) == 0
        clock.advance(11)
        send(engine, 1)
        assert 0 < first_of(engine) <= 8
        clock.advance(100)
        send(engine, 8)
        assert first_of(engine) > 8
    check(disk)


def test_a_segment_without_messages_is_as_old_as_its_records() -> None:
    """A recent outcome stays known, though no message was sent beside it."""
    clock = FakeClock()
    with opened(CrashDisk(), clock, retain_seconds=100) as engine:
        for number in range(30):
            engine.transaction(tx_id=f"T{number}").prepare()
            engine.decide(f"T{number}", "rollback", reason="r" * 500)
            clock.advance(1)
        assert engine.stats().segments > 3
        assert engine.outcome("T0").state == "rolled back"
        send(engine, 10)
        clock.advance(101)
        send(engine, 10)
        assert engine.stats().first_position > 8192


def test_without_limits_nothing_is_dropped() -> None:
    with opened(CrashDisk()) as engine:
        send(engine, 60)
        assert first_of(engine) == 0
        assert len(bodies(engine, "t")) == 60


def test_a_dropped_offset_raises_with_the_first_offset_that_is_left() -> None:
    with opened(CrashDisk(), retain_bytes=KEEP) as engine:
        send(engine, 60)
        first = first_of(engine)
        for offset in (0, first - 1):
            with pytest.raises(OffsetGone, match=f"the first message there is {first}") as caught:
                engine.read("t", offset=offset)
            assert (caught.value.first, caught.value.offset) == (first, offset)
        assert engine.read("t", offset=first, limit=1)[0].offset == first


def test_an_unused_queue_keeps_its_offsets() -> None:
    """All its messages are gone, and the next one continues the offsets."""
    disk = CrashDisk()
    with opened(disk, retain_bytes=KEEP) as engine:
        send(engine, 3, "quiet")
        send(engine, 60)
        (info,) = engine.queues("quiet")
        assert (info.first, info.next) == (3, 3)
        with pytest.raises(OffsetGone):
            engine.read("quiet", offset=2)
        assert engine.read("quiet", offset=3) == []
    for _ in range(2):
        remove(disk, *[name for name in content(disk) if name.startswith("checkpoint")])
        with opened(disk, retain_bytes=KEEP) as engine:
            assert engine.queues("quiet") == [info]
            send(engine, 30)
    with opened(disk) as engine:
        assert engine.send("quiet", b"").offset == 3
    check(disk)


def test_outcomes_are_dropped_with_their_segment() -> None:
    with opened(CrashDisk(), retain_bytes=KEEP) as engine:
        with engine.transaction(tx_id="T") as tx:
            tx.send("t", b"")
        assert engine.outcome("T").state == "committed"
        send(engine, 60)
        first = engine.stats().first_position
        with pytest.raises(UnknownTransaction, match=f"at or after position {first}"):
            engine.outcome("T")


def test_messages_with_times_in_the_future_are_kept_and_reported() -> None:
    """Times never go back, so later messages get the same time until the clock has reached it."""
    disk, clock = CrashDisk(), FakeClock()
    with opened(disk, clock, retain_seconds=100) as engine:
        clock.set_wall_clock(clock.time_us() + 3600 * 1_000_000)
        send(engine, 1)
        clock.set_wall_clock(clock.time_us() - 3600 * 1_000_000)
        send(engine, 20)
        clock.advance(200)
        engine.sync()
        kept = engine.stats().kept
        assert kept is not None and first_of(engine) == kept.segment == 0
        assert kept.by.endswith("Z, which a clock gave that was ahead"), kept
        clock.advance(3600)
        engine.sync()
        assert first_of(engine) > 0
        assert engine.stats().kept is None
    check(disk)


def test_by_age_segments_are_dropped_even_if_nothing_is_published() -> None:
    """A rolled back transaction is as old as the beginning of the next segment."""
    disk, clock = CrashDisk(), FakeClock()
    with opened(disk, clock, retain_seconds=60) as engine:
        for number in range(30):
            tx = engine.transaction(tx_id=f"T{number}")
            tx.send("t", b"x" * 500)
            tx.prepare()
            tx.rollback()
            clock.advance(1)
        assert engine.stats().segments > 3
        clock.advance(3600)
        engine.sync()
        assert engine.stats().segments == 1
    check(disk)


def test_an_engine_opened_over_its_limit_drops_segments_by_itself() -> None:
    disk, clock = CrashDisk(), FakeClock()
    with opened(disk, clock) as engine:
        send(engine, 60)
        assert engine.stats().segments > 5
    limited = Options(segment_bytes=4096, retain_bytes=KEEP)
    with fmq.open("data", limited, disk=disk, clock=clock) as engine:

        def kept() -> bool:
            clock.advance(60)
            return engine.stats().segments <= 3

        clock.until(kept)


def test_few_files_are_open_at_once_however_many_segments_are_dropped() -> None:
    """A new limit may drop more segments than a process may have open files."""

    class Counted(FaultDisk):
        """Knows how many files are open, and how many were."""

        def __init__(self) -> None:
            super().__init__(CrashDisk())
            self.now = self.most = 0

        def directory(self, path: str, *, make: bool) -> Any:
            disk, directory = self, super().directory(path, make=make)

            class File:
                def __init__(self, file: Any) -> None:
                    self._file = file
                    disk.now += 1
                    disk.most = max(disk.most, disk.now)

                def close(self) -> None:
                    disk.now -= 1
                    self._file.close()

                def __getattr__(self, name: str) -> Any:
                    return getattr(self._file, name)

            class Counting:
                def open(self, name: str, *, write: bool = False) -> Any:
                    return File(directory.open(name, write=write))

                def __getattr__(self, name: str) -> Any:
                    return getattr(directory, name)

            return Counting()

    disk = Counted()
    with opened(disk) as engine:
        for _ in range(60):
            fill(engine, "t", 3000)
        assert engine.stats().segments > 50
    disk.most = disk.now
    with opened(disk, retain_bytes=KEEP) as engine:
        engine.send("t", b"x")
        assert engine.stats().segments == 3
        assert disk.most < 25
    check(disk)
