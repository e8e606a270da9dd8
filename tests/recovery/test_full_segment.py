"""A segment that is full to its last byte, and an empty segment after it."""

from __future__ import annotations

import fmq
from fmq import Options
from fmq.testing import CrashDisk, FakeClock

OPTIONS = Options(segment_bytes=4096, checkpoint_bytes=100_000)


def opened(disk: CrashDisk) -> fmq.Engine:
    return fmq.open("data", OPTIONS, disk=disk, clock=FakeClock(), background=False)


def filled() -> CrashDisk:
    """A disk whose engine was killed with an undecided transaction in a segment without room.

    Method: what one message takes beside its body is found out with another one.
    """
    disk = CrashDisk()
    engine = opened(disk)
    engine.send("a", b"first")  # so that what is replayed begins inside the segment
    tx = engine.transaction(tx_id="t")
    tx.send("a", b"prepared")
    tx.prepare()
    before = engine.stats().position
    engine.send("a", bytes(1000))
    beside = engine.stats().position - before - 1000
    engine.send("a", bytes(4096 - engine.stats().position - beside))
    assert engine.stats().position == 4096
    killed = disk.after_kill()
    engine.close()
    return killed


def test_a_directory_closed_after_a_full_segment_opens_again() -> None:
    """Kill at any step of the roll. The next segment may be there, with nothing in it.

    The applied position is the end of the full segment, and also the first of the next one.
    """
    disk, rolls = filled(), list[CrashDisk]()
    engine = opened(disk)
    disk.watch(lambda _: rolls.append(disk.after_kill()))
    engine.send("a", b"rolls")
    disk.watch(None)
    engine.close()
    assert len(rolls) > 3
    for i, killed in enumerate(rolls):
        opened(killed).close()
        with opened(killed) as engine:
            assert [each.tx_id for each in engine.undecided()] == ["t"], i
            assert len(engine.read("a")) in (3, 4), i
