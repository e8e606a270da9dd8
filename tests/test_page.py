"""What readers elsewhere learn from the page of an open engine, and when they do not believe it."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import fmq
from fmq import ReadOnlyEngine, table
from fmq.engines.read_only_door import LOOK_SECONDS
from fmq.errors import Locked
from fmq.machine.disk import Page
from fmq.posix import RealDirectory, RealDisk
from fmq.recovery.layout import read_header
from fmq.store.journal.durable_page import (
    AGAIN,
    BOOT,
    DURABLE_TO,
    IDENTITY,
    INCARNATION,
    PAGE,
    STORE,
    PageReader,
    Told,
    begin_page,
)
from fmq.table.snapshot import see
from fmq.testing import CrashDisk, FakeClock, FaultDisk
from fmq.testing.inside import inside
from tests.small import bodies, opened

FAR = 4096


@pytest.fixture
def disk() -> CrashDisk:
    return CrashDisk()


def looking(disk: Any) -> ReadOnlyEngine:
    return fmq.open("data", read_only=True, disk=disk, clock=FakeClock())


def test_a_message_is_visible_to_other_processes_when_its_send_returns(disk: CrashDisk) -> None:
    """Nothing is written after it. So do messages in later segments, and decisions."""
    with opened(disk) as engine, looking(disk) as reader:
        for number in range(40):
            engine.send("t", b"%d" % number + b"x" * 300)
            assert len(bodies(reader, "t")) == number + 1
            assert see("data", disk=disk).visible_to == reader.visible_to
        assert engine.stats().segments > 2
        tx = engine.transaction(tx_id="T")
        tx.send("t", b"last")
        tx.prepare()
        assert reader.undecided() == engine.undecided()
        tx.commit()
        assert bodies(reader, "t")[-1] == b"last"
        assert reader.outcome("T") == engine.outcome("T")


def test_an_unsynced_message_is_not_visible_to_other_processes(disk: CrashDisk) -> None:
    with opened(disk, sync="never") as engine, looking(disk) as reader:
        engine.send("t", b"0")
        assert bodies(engine, "t") == [b"0"]
        assert bodies(reader, "t") == []
        engine.sync()
        assert bodies(reader, "t") == [b"0"]


def test_a_waiting_reader_returns_within_milliseconds(disk: CrashDisk) -> None:
    """The clock lets the time of each wait pass at once. A message comes during one of them."""

    class Waking(FakeClock):
        def wait(self, lock: Any, timeout: float | None) -> bool:
            if not sent:
                engine.send("t", b"news")
                sent.append(self.monotonic())
            return super().wait(lock, timeout)

    sent: list[float] = []
    with opened(disk) as engine:
        engine.send("t", b"old")
        clock = Waking()
        with fmq.open("data", read_only=True, disk=disk, clock=clock) as reader:
            (message,) = reader.read("t", offset=1, timeout=10)
            assert message.body == b"news"
            assert clock.monotonic() - sent[0] < LOOK_SECONDS / 10


def test_a_refresh_beside_an_engine_reads_only_what_is_new(disk: CrashDisk) -> None:
    """It reads neither checkpoints nor the rest of the segment, whatever its size."""
    faults = FaultDisk(disk)
    with opened(disk, segment_bytes=16 << 20) as engine:
        engine.send("t", b"0")
        engine.checkpoint()
        with looking(faults) as reader:
            for number in range(1, 4):
                engine.send("t", b"%d" % number)
                before = faults.count("read", names="*.seg")
                reader.refresh()
                assert faults.count("read", names="*.seg") - before == 2  # the header, and this
            assert bodies(reader, "t") == [b"0", b"1", b"2", b"3"]
            slots = faults.count("open", names="*/checkpoint*")
            reader.refresh()
            assert faults.count("open", names="*/checkpoint*") == slots


def test_a_checkpoint_after_the_look_at_the_page_hides_nothing(disk: CrashDisk) -> None:
    """The checkpoint says more than the page had said, and its part is lost: the reader indexes
    all that the checkpoint covers.
    """
    faults = FaultDisk(disk)
    with opened(disk) as engine:
        for number in range(3):
            engine.send("t", b"%d" % number)

        def go_on() -> None:
            engine.send("t", b"3")
            engine.checkpoint()
            directory = disk.directory("data", make=False)
            for name in directory.names():
                if name.endswith(".part"):
                    directory.remove(name)

        faults.before("open", go_on, nth=1, names="*.seg")  # the first tells which store it is
        with looking(faults) as reader:
            assert bodies(reader, "t") == [b"0", b"1", b"2", b"3"]


def test_an_engine_without_a_page_is_followed_by_its_records(disk: CrashDisk) -> None:
    """The last append is then seen with the next one. The disk is too full for a page, or the
    reader may not open it.
    """
    full, forbidden = FaultDisk(disk), FaultDisk(disk)
    full.fail("create", names=f"*/{PAGE}", error=errno.ENOSPC, persistently=True)
    forbidden.fail("open", names=f"*/{PAGE}", error=errno.EACCES, persistently=True)
    for writing, reading in ((full, disk), (disk, forbidden)):
        with opened(writing) as engine:
            (_, before) = engine.send("t", b"0"), len(bodies(engine, "t"))
            with looking(reading) as reader:
                assert len(bodies(reader, "t")) == before - 1
                engine.send("t", b"1")
                assert len(bodies(reader, "t")) == before


def test_a_page_is_gone_after_a_close_and_replaced_after_a_kill(disk: CrashDisk) -> None:
    with opened(disk) as engine, looking(disk) as reader:
        engine.send("t", b"0")
        assert PAGE in disk.directory("data", make=False).names()
        first = incarnation(disk)
        left = disk.after_kill()
        assert bodies(reader, "t") == [b"0"]
    assert PAGE not in disk.directory("data", make=False).names()
    assert PAGE in left.directory("data", make=False).names()
    with looking(left) as reader, opened(left) as engine:
        assert incarnation(left) != first
        engine.send("t", b"1")
        assert bodies(reader, "t") == [b"0", b"1"]


def incarnation(disk: CrashDisk) -> list[int]:
    page = disk.directory("data", make=False).page(PAGE)
    try:
        return list(page.words[INCARNATION : INCARNATION + 2])
    finally:
        page.close()


def lying(disk: CrashDisk, end: int) -> Page:
    """A page that says that the journal is durable up to `end`, held as by an engine."""
    directory = disk.directory("data", make=False)
    return begin_page(directory, read_header(directory, 0).store, b"lie", end)


def unsynced() -> tuple[CrashDisk, int]:
    """A disk as a kill leaves it, with one message that was not synced; and where that ends."""
    disk = CrashDisk()
    with opened(disk, sync="never") as engine:
        engine.send("t", b"0")
        return disk.after_kill(), inside(engine).journal.position


def test_visible_messages_stay_visible_when_the_engine_is_killed(disk: CrashDisk) -> None:
    """For readers that are there, for new ones and for tables, over a roll and a decision. And a
    power cut may leave any bytes in the page: it is not believed, and no damage is seen.
    """
    with opened(disk) as engine, looking(disk) as reader:
        for number in range(20):
            engine.send("t", b"%d" % number + b"x" * 300)
        for number in range(2):
            engine.transaction(tx_id=str(number)).prepare()
        engine.transaction(tx_id="T").commit()
        shown = bodies(reader, "t"), reader.undecided(), reader.outcome("T"), reader.visible_to
        killed = disk.after_kill()
        for _ in range(2):
            with looking(killed) as late:
                seen = bodies(late, "t"), late.undecided(), late.outcome("T"), late.visible_to
                assert seen == shown
                late.refresh()
                assert late.visible_to == shown[-1]
            assert see("data", disk=killed).visible_to == shown[-1]
            killed = killed.after_kill()
    for cut in (killed.after(loss) for loss in killed.losses()):
        with looking(cut) as late:
            assert late.visible_to < shown[-1]
            assert late.damage is None


def test_visible_messages_stay_visible_while_the_next_engine_opens(disk: CrashDisk) -> None:
    """Before each operation of recovery, and of an engine that finds no room for a page."""
    with opened(disk) as engine, looking(disk) as reader:
        for number in range(3):
            engine.send("t", b"%d" % number)
        shown = reader.visible_to
        killed = disk.after_kill()
    full = FaultDisk(killed)
    full.fail("create", names=f"*/{PAGE}", error=errno.ENOSPC, persistently=True)
    late = looking(killed)
    looks = []

    def look(_: str) -> None:
        looks.append(see("data", disk=killed).visible_to)
        late.refresh()
        looks.append(late.visible_to)

    killed.watch(look)
    with opened(full) as engine:
        engine.send("t", b"3")
        engine.send("t", b"4")
        late.refresh()
        assert bodies(late, "t") == [b"0", b"1", b"2", b"3"]
    killed.watch(None)
    assert len(looks) > 4
    assert looks == sorted(looks)
    assert min(looks) >= shown
    late.close()


@pytest.mark.parametrize("failing", ["write", "open"])
def test_visible_messages_stay_visible_if_the_last_checkpoint_fails(
    disk: CrashDisk, failing: Any
) -> None:
    """Because an append fails, and with it the engine; or because the checkpoint alone does."""
    faults = FaultDisk(disk)
    engine = opened(faults)
    for number in range(3):
        engine.send("t", b"%d" % number)
    with looking(disk) as reader:
        shown = reader.visible_to
    if failing == "write":
        faults.fail("write", names="*.seg")
        with pytest.raises(fmq.errors.FmqError):
            engine.send("t", b"lost")
    else:
        faults.fail("create", names="*/checkpoint*", persistently=True)
        faults.fail("open", names="*/checkpoint*", persistently=True)
    with suppress(fmq.errors.FmqError):
        engine.close()
    with looking(disk) as reader:
        assert reader.visible_to >= shown
        assert bodies(reader, "t")[:3] == [b"0", b"1", b"2"]


@pytest.mark.parametrize("word", [0, 1, BOOT, BOOT + 1, STORE, STORE + 1, IDENTITY, IDENTITY + 1])
@pytest.mark.parametrize("held", [True, False])
def test_a_page_with_a_wrong_word_is_not_believed(word: int, *, held: bool) -> None:
    """It is of another version, start of the machine, store or file. The last two count only when
    it is not held: an fmq from before does not store them.
    """
    disk, end = unsynced()
    page = lying(disk, end)
    page.words[word] ^= 1
    seen = disk if held else disk.after_kill()
    with looking(seen) as reader:
        assert bodies(reader, "t") == ([b"0"] if held and word >= STORE else [])
        assert reader.damage is None
    page.words[word] ^= 1
    with looking(disk if held else disk.after_kill()) as reader:
        assert bodies(reader, "t") == [b"0"]
    page.close()


@pytest.mark.parametrize("word", [DURABLE_TO, AGAIN])
def test_of_two_positions_in_a_page_the_smaller_one_counts(word: int) -> None:
    """A kill came between the two stores."""
    disk, end = unsynced()
    page = lying(disk, end)
    page.words[word] += 8
    with looking(disk.after_kill()) as reader:
        assert bodies(reader, "t") == [b"0"]
        assert reader.damage is None
    page.close()


def test_a_page_alone_does_not_count_as_a_journal(disk: CrashDisk) -> None:
    """It says nothing without its engine, so a new journal may begin there."""
    begin_page(disk.directory("data", make=True), bytes(16), b"", FAR)
    left = disk.after_kill()
    with opened(left) as engine, looking(left) as reader:
        engine.send("t", b"0")
        assert bodies(reader, "t") == [b"0"]
    assert fmq.check("data", disk=left).ok


# --- on this machine ------------------------------------------------------------------------------


def test_a_copy_of_a_page_is_not_believed(tmp_path: Path) -> None:
    """Another engine holds the lock of the copy, and has not made its own page yet."""
    with fmq.open(tmp_path / "a") as engine:
        engine.send("t", b"0")
        shutil.copytree(tmp_path / "a", tmp_path / "b")
    store = bytes.fromhex(see(str(tmp_path / "a")).store.hex())
    directory = RealDisk().directory(str(tmp_path / "b"), make=False)
    release = directory.lock("LOCK")
    reader = PageReader(directory, store)
    assert (tmp_path / "b" / PAGE).stat().st_size == 4096
    assert reader.look() == Told(0, is_open=False)
    page = begin_page(directory, store, b"", FAR)
    assert reader.look() == Told(FAR, is_open=True)
    assert reader.glance() == FAR
    page.words[DURABLE_TO] = page.words[AGAIN] = FAR + 8
    assert reader.glance() == FAR + 8
    page.close()
    assert reader.look() == Told(0, is_open=False)
    release()
    directory.close()


SENDER = """
import signal, sys, fmq
path, how = sys.argv[1:]
with (fmq.connect(path) if how == "connect" else fmq.open(path)) as engine:
    for number in range(7):
        engine.send("t", b"%d" % number)
    print("sent", flush=True)
    signal.pause()
"""


@pytest.mark.parametrize("how", ["open", "connect"])
def test_visible_messages_stay_visible_after_a_kill_of_their_process(
    tmp_path: Path, how: str
) -> None:
    """The process that has the directory open is killed: a program, or the server of clients."""
    path = tmp_path / "d"
    with subprocess.Popen(
        [sys.executable, "-c", SENDER, str(path), how], stdout=subprocess.PIPE
    ) as sender:
        assert sender.stdout is not None
        assert sender.stdout.readline() == b"sent\n"

        def shown() -> tuple[int, int]:
            with fmq.open(path, read_only=True) as reader:
                return len(bodies(reader, "t")), table.read(str(path)).read_all().num_rows

        try:
            assert shown() == (7, 7)
            directory = RealDisk().directory(str(path), make=False)
            (holder, *_) = (path / "LOCK").read_text().split("\n")
            os.kill(int(holder.removeprefix("process ")), signal.SIGKILL)
        finally:
            sender.kill()
    while directory.locked_by("LOCK") is not None:  # the kernel is about to end the process
        pass
    directory.close()
    assert shown() == (7, 7)
    shutil.copytree(path, tmp_path / "copy", ignore=shutil.ignore_patterns("S*"))
    with fmq.open(tmp_path / "copy", read_only=True) as reader:
        assert len(bodies(reader, "t")) == 6  # a copy may lack what the page says
    with fmq.open(path) as engine:
        engine.send("t", b"7")
    assert shown() == (8, 8)


@pytest.mark.parametrize("content", [b"", b"short", bytes(4096), b"\xff" * 4096])
def test_a_file_that_is_no_page_is_replaced(tmp_path: Path, content: bytes) -> None:
    with fmq.open(tmp_path / "d") as engine:
        engine.send("t", b"0")
    (tmp_path / "d" / PAGE).write_bytes(content)
    with fmq.open(tmp_path / "d", read_only=True) as reader:
        assert bodies(reader, "t") == [b"0"]
        with fmq.open(tmp_path / "d") as engine:
            engine.send("t", b"1")
            assert bodies(reader, "t") == [b"0", b"1"]
    assert not (tmp_path / "d" / PAGE).exists()


def test_a_link_in_place_of_the_page_is_not_followed(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"mine" * 2000)
    with fmq.open(tmp_path / "d") as engine:
        engine.send("t", b"0")
    (tmp_path / "d" / PAGE).symlink_to(other)
    with fmq.open(tmp_path / "d", read_only=True) as reader:
        assert bodies(reader, "t") == [b"0"]
    with fmq.open(tmp_path / "d"):
        pass
    assert other.read_bytes() == b"mine" * 2000


def test_a_forked_child_leaves_the_page_of_its_parent_alone(tmp_path: Path) -> None:
    """The child closes its copies, and the parent's page stays held."""
    with fmq.open(tmp_path / "d") as engine, fmq.open(tmp_path / "d", read_only=True) as reader:
        engine.send("t", b"0")
        assert bodies(reader, "t") == [b"0"]
        child = os.fork()
        if not child:
            with suppress(BaseException):
                engine.close()
                reader.close()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        engine.send("t", b"1")
        assert bodies(reader, "t") == [b"0", b"1"]
        with pytest.raises(Locked):
            fmq.open(tmp_path / "d")


class Elsewhere(RealDisk):
    """Files of this machine, of which it says that another one serves them."""

    def directory(self, path: str, *, make: bool) -> RealDirectory:
        directory = super().directory(path, make=make)
        directory._mounted.remote = "nfs4"
        return directory


def test_a_remote_file_system_has_no_pages(tmp_path: Path) -> None:
    """Two machines do not see the same memory there, so readers follow the records."""
    with fmq.open(tmp_path / "d", disk=Elsewhere(allow_remote=True)) as engine:
        engine.send("t", b"0")
        assert not (tmp_path / "d" / PAGE).exists()
    with fmq.open(tmp_path / "d") as engine:
        engine.send("t", b"1")
        with fmq.open(tmp_path / "d", read_only=True, disk=Elsewhere()) as reader:
            assert bodies(reader, "t") == [b"0"]
