"""A pin that meets retention at work."""

from __future__ import annotations

import fmq
import fmq.table
from fmq.machine.disk import File
from fmq.testing import CrashDisk
from tests.small import bodies, opened, segments
from tests.table.passing import PassingDisk

KEEP = 12288  # three segments


def send(engine: fmq.Engine, count: int) -> None:
    for _ in range(count):
        engine.send("t", b"x" * 500)


def test_a_segment_dropped_between_opening_and_pinning_is_not_pinned() -> None:
    """Retention drops the segment at that moment. The pin then begins at what is left."""
    disk = CrashDisk()
    with opened(disk, retain_bytes=KEEP) as engine:
        send(engine, 15)
        calls = iter([60])
        meanwhile = PassingDisk(disk, lambda: send(engine, next(calls, 0)))
        with fmq.table.pinned("data", disk=meanwhile) as first:
            assert first == {"data": engine.stats().first_position}
            assert first["data"] > 0
            send(engine, 60)
            assert engine.stats().first_position == first["data"]
        send(engine, 15)
        assert engine.stats().first_position > first["data"]


def test_pinning_tries_again_while_retention_has_a_segment_locked() -> None:
    disk = CrashDisk()
    with opened(disk) as engine:
        send(engine, 30)
    oldest = segments(disk)[0]
    lock: File = disk.directory("data", make=False).open(oldest)
    assert lock.pin(exclusive=True)
    refusals = []

    def give_way() -> None:
        refusals.append(1)
        if len(refusals) == 3:
            lock.close()

    with fmq.table.pinned("data", disk=PassingDisk(disk, give_way)) as first:
        assert first == {"data": 0}
    assert len(refusals) == 3


def test_an_engine_writes_and_reads_beside_a_pin() -> None:
    disk = CrashDisk()
    with opened(disk, retain_bytes=KEEP) as engine:
        send(engine, 15)
        with fmq.table.pinned("data", disk=disk), fmq.table.pinned("data", disk=disk):
            send(engine, 60)
            assert len(bodies(engine, "t")) == 75
            assert fmq.table.read("data", disk=disk).read_all().num_rows >= 74
