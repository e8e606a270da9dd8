"""What keeps one chore from being done keeps nothing else: the engine goes on, and says it."""

from __future__ import annotations

import errno
import os
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Thread
from typing import Any, Literal

import pytest

import fmq
from fmq import Engine, Options
from fmq.errors import (
    BadOption,
    Damaged,
    EngineFailed,
    FmqError,
    StorageFull,
    TooLarge,
    TxIdInUse,
    Unreadable,
)
from fmq.machine.disk import Directory
from fmq.posix import RealDisk
from fmq.testing import CrashDisk, FakeClock, FaultDisk
from tests.small import bodies, content, fill, flip, flip_two, opened, remove, segments


def in_trouble(engine: Engine, word: str) -> None:
    """Something is said, and everything else goes on."""
    for _ in range(40):
        engine.send("other", b"x" * 400)
    trouble = engine.stats().trouble
    assert trouble is not None
    assert word in trouble
    assert len(bodies(engine, "other")) >= 40


def test_a_damaged_undecided_transaction_is_reported_as_trouble() -> None:
    disk = CrashDisk()
    with opened(disk, relocate_bytes=4096) as engine:
        tx = engine.transaction(tx_id="T")
        tx.send("t", b"b" * 1000)
        tx.prepare()
        flip(disk, segments(disk)[0], 800)
        in_trouble(engine, "undecided transaction")
        checkpoints = engine.stats().checkpoints
        engine.send("other", b"last")
        assert engine.stats().checkpoints >= checkpoints
        tx.rollback()


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOENT])
def test_an_unreadable_undecided_transaction_stops_no_checkpoint(
    number: int,
) -> None:
    """Otherwise every message would make the next replay longer."""
    disk = FaultDisk(CrashDisk())
    with opened(disk) as engine:
        tx = engine.transaction(tx_id="T")
        tx.send("t", b"b" * 1000)
        tx.prepare()
        fill(engine, "u")
    with opened(disk, relocate_bytes=1, checkpoint_bytes=4096) as engine:
        disk.fail("open", error=number, persistently=True, names=f"*{segments(disk)[0]}")
        fill(engine, "u")
        fill(engine, "u")
        checkpoints = engine.stats().checkpoints
        in_trouble(engine, "undecided transaction")
        assert engine.stats().checkpoints >= checkpoints + 4
        disk.heal()
        for _ in range(4):
            fill(engine, "u")
        assert engine.stats().trouble is None
        assert engine.undecided()[0].position > 8192


def test_retention_stops_at_a_damaged_segment_and_reports_trouble() -> None:
    disk, clock = CrashDisk(), FakeClock()
    with opened(disk, clock) as engine:
        for _ in range(3):
            fill(engine, "t")
    first, *_ = segments(disk)
    flip_two(disk, first, 2000)
    remove(disk, *[name for name in content(disk) if name.endswith(".idx")])
    with opened(disk, clock, retain_seconds=1) as engine:
        clock.advance(100)
        in_trouble(engine, "retention")
        last = engine.queues("t")[0].next - 1
        assert engine.read("t", offset=last)
        with pytest.raises(Damaged, match=first):
            engine.read("t")


def test_a_segment_that_retention_cannot_read_is_reported_as_trouble() -> None:
    disk = FaultDisk(CrashDisk())
    with opened(disk) as engine:
        for _ in range(3):
            fill(engine, "t")
    first, *_ = segments(disk)
    remove(disk, first.replace(".seg", ".idx"))
    with opened(disk, retain_bytes=4096) as engine:
        disk.fail("read", error=errno.EIO, persistently=True, names=f"*{first}")
        in_trouble(engine, "retention cannot go on")


def test_a_state_that_fits_no_segment_stops_only_retention() -> None:
    disk = CrashDisk()
    with opened(disk, retain_bytes=8192) as engine:
        for number in range(120):
            engine.send(f"a topic whose name is as long as names may be in practice {number}", b"x")
        in_trouble(engine, "retention")
    with opened(disk, retain_bytes=8192) as engine:
        in_trouble(engine, "retention")
    with opened(disk, segment_bytes=65536, retain_bytes=65536) as engine:
        for _ in range(400):
            engine.send("other", b"x" * 400)
        assert engine.stats().trouble is None
        assert engine.stats().first_position > 0


def test_retention_releases_its_locks_if_it_cannot_get_them_all() -> None:
    """Otherwise it would wait for ever for its own locks, as for an export."""
    disk = FaultDisk(CrashDisk())
    with opened(disk) as engine:
        for _ in range(8):
            fill(engine, "t")
    with opened(disk, retain_bytes=8192) as engine:
        disk.fail("open", nth=3, error=errno.EMFILE, names="*.seg")
        engine.send("t", b"x")
        disk.heal()
        for _ in range(3):
            fill(engine, "t")
        assert engine.stats().kept is None
        assert engine.stats().segments <= 3


@pytest.mark.parametrize(
    ("number", "error"), [(errno.ENOSPC, StorageFull), (errno.EIO, Unreadable)]
)
def test_a_checkpoint_that_cannot_be_written_raises_a_typed_error(
    number: int, error: type[Exception]
) -> None:
    disk = FaultDisk(CrashDisk())
    with opened(disk) as engine:
        engine.send("t", b"1")
        disk.fail("create", error=number, names="*checkpoint*", persistently=True)
        with pytest.raises(error):
            engine.checkpoint()
        engine.send("t", b"2")
        disk.heal()
        engine.checkpoint()
        assert bodies(engine, "t") == [b"1", b"2"]


@pytest.mark.parametrize("check_after", [1e17, float("inf"), float("nan"), -1, 2**63])
def test_a_check_after_that_no_record_can_hold_is_refused_at_once(
    check_after: float,
) -> None:
    with opened(CrashDisk()) as engine:
        with pytest.raises(BadOption, match="check_after"):
            engine.transaction(check_after=check_after)
        engine.send("t", b"goes on")


@pytest.mark.parametrize(
    "decide",
    [
        lambda engine: engine.decide("T", "commit"),
        lambda engine: engine.decide("T", "commit", reason="r" * 1024, decided_by="d" * 255),
        lambda engine: engine.decide("T", "rollback", reason="r" * 1024),
    ],
)
@pytest.mark.parametrize("acks", [False, True])
def test_a_prepared_transaction_with_mixed_messages_can_be_decided(
    decide: Callable[[Engine], object], acks: bool
) -> None:
    """One message with key, tag and headers makes all others of its run larger."""
    with opened(CrashDisk(), segment_bytes=8192) as engine:
        engine.send("in", b"o")
        (delivery,) = engine.consumer("in", group="g").poll()
        tx = engine.transaction(tx_id="T")
        if acks:
            tx.ack(delivery)
        tx.send("t", b"", key="k", tag="t", headers={"h": "v"})
        with pytest.raises(TooLarge):
            while True:
                tx.send("t", b"")
        tx.prepare()
        decide(engine)


@pytest.mark.parametrize("decision", ["commit", "rollback"])
@pytest.mark.parametrize("size", [6000, 13000])
@pytest.mark.parametrize("segment_bytes", [2048, 8192, 65536])
def test_no_setting_and_no_full_disk_refuses_a_decision(
    segment_bytes: int, size: int, decision: Literal["commit", "rollback"]
) -> None:
    disk = FaultDisk(CrashDisk())
    with opened(disk, segment_bytes=16384) as engine:
        tx = engine.transaction(tx_id="T")
        tx.send("t", b"b" * size)
        tx.prepare()
        engine.send("u", b"x" * (16384 - engine.stats().position % 16384 - 200))
    disk.fail("allocate", error=errno.ENOSPC, persistently=True)
    with opened(disk, segment_bytes=segment_bytes) as engine:
        engine.decide("T", decision, reason="r" * 500)
        expected = [b"b" * size] if decision == "commit" else []
        assert bodies(engine, "t") == expected
        disk.heal()
        for _ in range(3):
            engine.send("t", b"x" * 500)
        sizes = {len(data) for name, data in content(disk).items() if name.endswith(".spare")}
        assert max(sizes) <= max(segment_bytes, 16384), "those that are too large are gone"
    with opened(disk) as engine:
        assert len(bodies(engine, "t")) == len(expected) + 3


@pytest.mark.parametrize("names", ["*/checkpoint.*", "*.spare", "*.part", "*.idx"])
@pytest.mark.parametrize("operation", ["open", "read"])
def test_an_unreadable_derived_file_does_not_prevent_opening(
    operation: Literal["open", "read"], names: str
) -> None:
    disk = FaultDisk(CrashDisk())
    with opened(disk) as engine:
        fill(engine, "t")
        expected = bodies(engine, "t")
    disk.fail(operation, error=errno.EIO, persistently=True, names=names)
    with opened(disk) as engine:
        assert bodies(engine, "t") == expected
        engine.send("t", b"next")
    disk.heal()
    with opened(disk) as engine:
        assert bodies(engine, "t") == [*expected, b"next"]


def test_a_second_close_returns_only_when_the_first_is_done(tmp_path: Path) -> None:
    """So the directory is free for the next engine after either call."""
    entered, go_on = Event(), Event()

    class Slow:
        """A directory that takes its time to be closed."""

        def __init__(self, directory: Directory) -> None:
            self._directory = directory

        def close(self) -> None:
            entered.set()
            assert go_on.wait(60)
            self._directory.close()

        def __getattr__(self, name: str) -> Any:
            return getattr(self._directory, name)

    class SlowDisk(RealDisk):
        def directory(self, path: str, *, make: bool) -> Any:
            return Slow(super().directory(path, make=make))

    engine = fmq.open(tmp_path / "d", disk=SlowDisk())
    first = Thread(target=engine.close)
    first.start()
    assert entered.wait(60)
    second = Thread(target=engine.close)
    second.start()
    second.join(0.1)
    returned = not second.is_alive()
    go_on.set()
    first.join()
    second.join()
    assert not returned
    engine.close()


def test_an_incomplete_copy_on_a_full_disk_is_not_kept() -> None:
    disk = CrashDisk()
    with opened(disk) as engine:
        engine.send("t", b"1")
        end = engine.stats().position
    name = segments(disk)[0]
    file = disk.directory("data", make=False).open(name, write=True)
    file.write(end + 64, (b"torn" * 100,), sync=True)
    faulty = FaultDisk(disk)
    faulty.fail("write", error=errno.ENOSPC, names="*.cut", short=100, persistently=True)
    for _ in range(3):
        with pytest.raises(StorageFull):
            opened(faulty)
    faulty.heal()
    folder = disk.directory("data", make=False).subdirectory("quarantine", make=True)
    assert folder.names() == []
    with opened(faulty) as engine:
        assert bodies(engine, "t") == [b"1"]
    assert len(folder.names()) == 1


def test_a_damaged_place_does_not_fail_the_engine() -> None:
    """Only the call that reads it raises."""
    disk = CrashDisk()
    with opened(disk) as engine:
        engine.send("t", b"x" * 1000)
        flip(disk, segments(disk)[0], 500)
        with pytest.raises(Damaged):
            engine.read("t")
        engine.send("u", b"goes on")
        assert bodies(engine, "u") == [b"goes on"]


@pytest.mark.parametrize(
    ("operation", "number"), [("read", errno.EIO), ("open", errno.EMFILE), ("open", errno.EACCES)]
)
def test_a_segment_that_cannot_be_read_and_has_no_index_hides_no_other(
    operation: Literal["open", "read"], number: int
) -> None:
    """It is readable again once the disk is."""
    disk = FaultDisk(CrashDisk())
    with opened(disk) as engine:
        for _ in range(4):
            fill(engine, "t")
        expected = bodies(engine, "t")
    second = segments(disk)[1]
    remove(disk, second.replace(".seg", ".idx"))
    with opened(disk) as engine:
        disk.fail(operation, error=number, persistently=True, names=f"*{second}")
        hidden = 0
        for offset, body in enumerate(expected):
            try:
                assert [each.body for each in engine.read("t", offset=offset, limit=1)] == [body]
            except Unreadable:
                hidden += 1
        assert 0 < hidden < len(expected) / 2
        disk.heal()
        assert bodies(engine, "t") == expected


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_too_many_open_files_at_a_roll_refuse_only_that_call(
    number: int,
) -> None:
    """The disk works, and files may be free again in a moment."""
    disk = FaultDisk(CrashDisk())
    with opened(disk) as engine:
        tx = engine.transaction(tx_id="T")
        tx.send("t", b"x" * 1000)
        tx.prepare()
        disk.fail("create", error=number, names="*.spare.new", persistently=True)
        sent = 0
        with pytest.raises(Unreadable, match=r"ulimit -n.*call again"):
            while True:
                engine.send("u", b"x" * 500)
                sent += 1
        another = engine.transaction(tx_id="another")
        another.send("t", b"y" * 2000)
        with pytest.raises(Unreadable):
            another.prepare()
        another.rollback()
        assert engine.decide("T", "commit").messages == 1
        disk.heal()
        engine.send("u", b"goes on")
        assert len(bodies(engine, "u")) == sent + 1
        assert len(bodies(engine, "t")) == 1
    with opened(disk) as engine:
        assert len(bodies(engine, "u")) == sent + 1


def test_the_first_send_opens_no_file() -> None:
    """The current segment is open already. With too many open files, opening is refused."""
    disk = FaultDisk(CrashDisk())
    with opened(disk) as engine:
        engine.send("t", b"1")
    with opened(disk) as engine:
        disk.fail("open", error=errno.EMFILE, names="*.seg", persistently=True)
        engine.send("t", b"2")
        disk.heal()
        assert bodies(engine, "t") == [b"1", b"2"]
    disk.fail("open", error=errno.EMFILE, names="*.seg", persistently=True)
    with pytest.raises(Unreadable, match="ulimit -n"):
        opened(disk)
    disk.heal()
    with opened(disk) as engine:
        assert bodies(engine, "t") == [b"1", b"2"]


def test_a_refused_opening_leaves_no_file_open(tmp_path: Path) -> None:
    """Any of its files may be the one that cannot be opened. A spare may be open by then."""
    with fmq.open(tmp_path, Options(segment_bytes=4096), background=False) as engine:
        fill(engine, "t")
    assert [*tmp_path.glob("*.spare")]
    before, opened_at = len(os.listdir("/proc/self/fd")), 0
    for nth in range(1, 20):
        disk = FaultDisk(RealDisk())
        disk.fail("open", nth=nth, error=errno.EMFILE)
        try:
            fmq.open(tmp_path, Options(segment_bytes=4096), disk=disk).close()
            opened_at = nth
        except Unreadable:
            assert len(os.listdir("/proc/self/fd")) <= before
    assert opened_at > 2


def length_of_trace(call: Callable[[], object]) -> int:
    """Of the error that the call raises."""
    with pytest.raises(FmqError) as caught:
        call()
    return len(traceback.extract_tb(caught.value.__traceback__))


def test_a_repeated_error_does_not_carry_earlier_tracebacks() -> None:
    """Each traceback would keep the callers' objects as long as the engine lives."""
    disk = CrashDisk()
    with opened(disk) as engine:
        for _ in range(3):
            fill(engine, "t")
    first = segments(disk)[0]
    flip(disk, first, 300)
    remove(disk, first.replace(".seg", ".idx"))
    engine, reader = opened(disk), fmq.open("data", disk=disk, read_only=True)
    closed = fmq.open("other", disk=disk, background=False)
    closed.close()
    removed = fmq.open("other", disk=disk, read_only=True)
    other = disk.directory("other", make=False)
    for name in other.names():
        other.remove(name)
    closed_reader = fmq.open("data", disk=disk, read_only=True)
    closed_reader.close()
    for call in (
        lambda: engine.read("t"),
        lambda: reader.read("t"),
        lambda: closed.read("t"),
        closed.sync,
        lambda: closed.send("t", b""),
        closed.queues,
        closed_reader.queues,
        removed.queues,
    ):
        length_of_trace(call)
        assert length_of_trace(call) == length_of_trace(call)
    engine.close()
    reader.close()
    removed.close()


@pytest.mark.parametrize("operation", ["mkdir", "create", "directory sync"])
def test_a_full_disk_at_the_first_opening_raises_storage_full(operation: Any) -> None:
    disk = FaultDisk(CrashDisk())
    disk.fail(operation, error=errno.ENOSPC)
    with pytest.raises(StorageFull, match="no room"):
        opened(disk)
    disk.heal()
    with opened(disk) as engine:
        engine.send("t", b"1")


def test_the_error_of_a_failed_engine_names_the_file(tmp_path: Path) -> None:
    with fmq.open(tmp_path / "d") as engine:
        engine.send("t", b"1")
        for number in os.listdir("/proc/self/fd"):
            path = os.path.realpath(f"/proc/self/fd/{number}")
            if path.startswith(str(tmp_path)) and path.endswith(".seg"):
                with open(path, "rb") as read_only:
                    os.dup2(read_only.fileno(), int(number))
        with pytest.raises(EngineFailed, match=r"00000000\.seg"):
            engine.send("t", b"2")


def test_a_time_beyond_the_calendar_is_shown_as_the_last_datetime() -> None:
    """A wrong clock gave it. Messages sent then can still be read and decided."""
    disk = CrashDisk()
    with opened(disk, clock=FakeClock(10**18)) as engine:
        engine.send("t", b"1")
        tx = engine.transaction(tx_id="T")
        tx.send("t", b"2")
        tx.prepare()
    with opened(disk) as engine:
        [message] = engine.read("t")
        assert message.time == datetime.max.replace(tzinfo=UTC)
        assert [each.tx_id for each in engine.undecided()] == ["T"]
        assert engine.decide("T", "commit").state == "committed"
        with pytest.raises(TxIdInUse, match="9999"):
            engine.transaction(tx_id="T")


def test_no_trouble_is_left_once_sends_work_again() -> None:
    """What made a call find room for a segment is no news to the thread, which pauses."""
    clock, disk = FakeClock(), FaultDisk(CrashDisk())
    options = Options(segment_bytes=4096)
    with fmq.open("data", options, disk=disk, clock=clock) as engine:
        disk.fail("allocate", error=errno.ENOSPC, persistently=True)
        sent = 0
        with pytest.raises(StorageFull):
            while True:
                engine.send("t", b"f" * 400)
                sent += 1
        clock.advance(10)
        clock.until(lambda: engine.stats().trouble)
        assert "no room" in str(engine.stats().trouble)
        disk.heal()
        assert engine.send("t", b"f" * 400).offset == sent
        assert engine.stats().trouble is None


def test_no_trouble_is_left_once_the_due_message_is_recalled() -> None:
    clock, disk = FakeClock(), FaultDisk(CrashDisk())
    with opened(disk, clock) as engine:
        receipt = engine.send("t", b"d" * 2000, delay=10)
        disk.fail("allocate", error=errno.ENOSPC, persistently=True)
        with pytest.raises(StorageFull):
            while True:
                engine.send("other", b"o" * 100)
        clock.advance(10)
        for _ in range(3):
            engine.sync()
        assert "no room to publish" in str(engine.stats().trouble)
        disk.heal()
        assert engine.recall(receipt)
        engine.sync()
        assert engine.stats().delayed == 0
        assert engine.stats().trouble is None
