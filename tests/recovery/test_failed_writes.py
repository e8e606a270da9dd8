"""After a failed write or sync: what was acknowledged stays, and nothing more is lost."""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress

import pytest

from fmq import Engine
from fmq.errors import EngineFailed, Unreadable
from fmq.testing import FaultDisk
from fmq.testing.faults import Operation
from tests.recovery.preparing import prepared
from tests.small import CrashDisk, bodies, check, content, opened

CALLS: dict[str, Callable[[Engine], object]] = {
    "send": lambda engine: engine.send("t", b""),
    "send_many": lambda engine: engine.send_many("t", [b""]),
    "one phase": lambda engine: engine.transaction().commit(),
    "prepare": lambda engine: engine.transaction().prepare(),
    "decide": lambda engine: engine.decide("T", "commit"),
    "sync": lambda engine: engine.sync(),
    "checkpoint": lambda engine: engine.checkpoint(),
    "transaction": lambda engine: engine.transaction(tx_id="new"),
    "consumer": lambda engine: engine.consumer("t", group="g"),
}


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("short", [None, 0, 30])
def test_after_a_failed_write_the_engine_only_reads(error: int, short: int | None) -> None:
    crash = CrashDisk()
    disk = FaultDisk(crash)
    engine = opened(disk)
    engine.send("t", b"0")
    prepared(engine, "T")
    disk.fail("write", names="*.seg", error=error, short=short)
    with pytest.raises(EngineFailed, match="outcome of calls that were running is unknown"):
        engine.send("t", b"1")
    disk.heal()
    operations = crash.operations
    for name, call in CALLS.items():
        with pytest.raises(EngineFailed):
            call(engine)
        assert bodies(engine, "t") == [b"0"], name
    assert [each.tx_id for each in engine.undecided()] == ["T"]
    assert engine.outcome("T").state == "undecided"
    assert engine.stats().failure is not None
    engine.close()
    assert crash.operations == operations, "not even a checkpoint is written"
    with opened(disk) as engine:
        assert bodies(engine, "t") in ([b"0"], [b"0", b"1"])
        assert [each.tx_id for each in engine.undecided()] == ["T"]
    check(crash)


FAILING: tuple[Operation, ...] = ("write", "sync", "rename", "directory sync")


def test_acknowledged_calls_survive_any_failed_write_or_sync() -> None:
    """Each write, sync, rename and directory sync of a workload fails once. The call that failed is
    there as a whole or not at all.
    """

    def work(engine: Engine, done: list[str]) -> None:
        for number in range(12):
            engine.send("t", b"%d" % number + b"x" * 300)
            done.append("sent")
        prepared(engine, "A")
        done.append("prepared")
        engine.decide("A", "commit")
        done.append("committed")

    counting = FaultDisk(CrashDisk())
    with opened(counting, checkpoint_bytes=1500) as engine:
        work(engine, [])
        counts = {operation: counting.count(operation) for operation in FAILING}
    for operation, count in counts.items():
        for nth in range(count):
            crash = CrashDisk()
            disk = FaultDisk(crash)
            done: list[str] = []
            disk.fail(operation, nth=nth)
            try:
                with opened(disk, checkpoint_bytes=1500) as engine:
                    work(engine, done)
            except (EngineFailed, OSError):
                pass
            disk.heal()
            for state in (crash.after_kill(), crash.after_power_loss(nth)):
                with opened(state) as engine:
                    sent = done.count("sent")
                    found = bodies(engine, "t")
                    whole = sent + ("committed" in done)
                    assert whole <= len(found) <= whole + 1, (operation, nth, done)
                    undecided = [each.tx_id for each in engine.undecided()]
                    if "committed" in done:
                        assert engine.outcome("A").state == "committed"
                    elif "prepared" in done:
                        assert undecided == ["A"] or engine.outcome("A").state == "committed"
                check(state)


def test_a_spare_whose_sync_failed_gets_no_acknowledged_record() -> None:
    """Recovery copies the tail into a spare and makes another spare, whose sync fails silently."""
    crash = CrashDisk()
    with opened(crash) as engine:
        engine.send("t", b"acknowledged")
        prepared(engine, "T", 1)
        killed = crash.after_kill()
    disk = FaultDisk(killed)
    disk.fail("sync", names="*.spare*", spoils=True)
    with opened(disk):
        assert disk.count("sync", names="*.spare*")
        disk.heal()
        again = killed.after_kill()
    with opened(again):  # it takes a spare for the copy
        for seed in range(3):
            with opened(again.after_power_loss(seed)) as after:
                assert bodies(after, "t") == [b"acknowledged"]
                assert [each.tx_id for each in after.undecided()] == ["T"]


def test_a_spare_whose_sync_failed_is_not_used_if_not_removed() -> None:
    crash = CrashDisk()
    disk = FaultDisk(crash)
    with opened(disk) as engine:
        disk.fail("sync", names="*.spare*", spoils=True)
        disk.fail("remove", names="*.spare*")
        for _ in range(20):
            engine.send("t", b"x" * 900)  # it was made ahead: the next one is made when needed
        assert any(name.endswith(".spare.new") for name in content(crash))
    disk.heal()
    with opened(crash) as engine:
        assert not any(name.endswith(".spare.new") for name in content(crash))
        for _ in range(20):
            sent = engine.send("t", b"x" * 900).offset + 1
        for seed in range(3):
            with opened(crash.after_power_loss(seed)) as after:
                assert len(bodies(after, "t")) == sent


def send_and_checkpoint(engine: Engine) -> None:
    engine.send("t", b"0")
    engine.checkpoint()


BEFORE: dict[str, Callable[[Engine], object]] = {
    "nothing": lambda engine: None,
    "a record": lambda engine: engine.send("t", b"0"),
    "a checkpoint": send_and_checkpoint,
}


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("before", BEFORE)
def test_a_segment_is_copied_after_a_failed_write_that_left_no_byte(
    before: str, closed: bool
) -> None:
    """In the file whose write failed nothing becomes durable any more."""
    crash = CrashDisk()
    disk = FaultDisk(crash)
    engine = opened(disk)
    BEFORE[before](engine)
    if closed:
        engine.close()
        engine = opened(disk)
    disk.fail("write", names="*.seg", short=0, spoils=True)
    with pytest.raises(EngineFailed):
        engine.send("t", b"failed")
    disk.heal()
    engine.close()
    assert "FAILED" in content(crash)
    with opened(disk) as engine:
        assert engine.stats().recovery.copied
        assert "FAILED" not in content(crash)
        sent = engine.send("t", b"acknowledged").offset + 1
        for seed in range(3):
            with opened(crash.after_power_loss(seed)) as after:
                assert len(bodies(after, "t")) == sent
    check(crash)


@pytest.mark.parametrize("undecided", [0, 3])
def test_a_spare_whose_header_could_not_be_written_is_never_used(undecided: int) -> None:
    """It is all zeros still. With other spares beside it, it was not taken for the copy and became
    the segment after.
    """
    crash = CrashDisk()
    disk = FaultDisk(crash)
    with opened(disk) as engine:
        for number in range(undecided):
            prepared(engine, f"T{number}", 700)
        names = "*/00000[1-9].spare.new" if undecided else "*.spare.new"
        disk.fail("write", names=names, short=0, spoils=True)
        with pytest.raises(EngineFailed):
            for _ in range(60):
                engine.send("t", b"f" * 400)
    disk.heal()
    with opened(disk) as engine:
        for _ in range(40):
            sent = engine.send("t", b"s" * 400).offset + 1
        for state in crash.states():
            with opened(state) as after:
                assert len(bodies(after, "t")) == sent
                assert len(after.undecided()) == undecided


def test_spares_that_cannot_be_opened_do_not_pile_up() -> None:
    crash = CrashDisk()
    disk = FaultDisk(crash)
    with opened(disk) as engine:
        disk.fail("open", names="*.spare", error=errno.EMFILE, persistently=True)
        before = sum(name.endswith(".spare") for name in content(crash))
        for _ in range(40):
            with suppress(Unreadable):
                engine.send("t", b"f" * 400)
        assert sum(name.endswith(".spare") for name in content(crash)) <= before
        disk.heal()
        engine.send("t", b"goes on")
    check(crash)
