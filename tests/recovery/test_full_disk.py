"""A full disk refuses messages whole, never a decision, and the directory opens."""

from __future__ import annotations

import errno
from typing import Any

import pytest

import fmq
from fmq import Engine, Options
from fmq.errors import EngineFailed, StorageFull
from fmq.machine.disk import Directory, File
from fmq.testing import FakeClock, FaultDisk
from fmq.testing.faults import Operation
from fmq.testing.inside import inside
from tests.recovery.preparing import prepared
from tests.small import SMALL, CrashDisk, bodies, check, content, opened, overwrite, remove

SEGMENT = "00000000000000000000.seg"
SMALL_OPTIONS = Options(**SMALL)
FULL = [errno.ENOSPC, errno.EDQUOT, errno.EFBIG]


def full(disk: FaultDisk, operation: Operation = "allocate", error: int = errno.ENOSPC) -> None:
    """From now on there is no room for another segment."""
    disk.fail(operation, error=error, persistently=True)


def send_until_full(engine: Engine) -> int:
    """Send until a message is refused. Return how many were accepted before."""
    sent = 0
    with pytest.raises(StorageFull, match="refused whole"):
        while True:
            engine.send("fill", b"f" * 400)
            sent += 1
    return sent


@pytest.mark.parametrize("error", FULL)
@pytest.mark.parametrize("operation", ["allocate", "create"])
def test_a_full_disk_refuses_a_send_whole_and_the_engine_goes_on(
    operation: Operation, error: int
) -> None:
    crash = CrashDisk()
    disk = FaultDisk(crash)
    with opened(disk) as engine:
        engine.send("fill", b"0")
        full(disk, operation, error)
        sent = 1 + send_until_full(engine)
        position = engine.stats().position
        for call in (
            lambda: engine.send_many("fill", [b"f" * 400] * 9),
            lambda: engine.send("new", b"f" * 3800),
        ):
            with pytest.raises(StorageFull):
                call()
        assert engine.stats().position == position
        assert len(bodies(engine, "fill")) == engine.queues("fill")[0].next == sent
        assert not engine.queues("new")
        assert engine.stats().failure is None
        assert engine.stats().trouble is not None
        disk.heal()
        assert engine.send("fill", b"f").offset == sent
        assert engine.stats().trouble is None
    check(crash)


def test_a_small_message_may_fit_where_a_large_one_did_not() -> None:
    disk = FaultDisk(CrashDisk())
    with opened(disk) as engine:
        engine.send("t", b"0")
        full(disk)
        send_until_full(engine)
        engine.send("t", b"1")
        assert bodies(engine, "t") == [b"0", b"1"]


def test_a_prepare_without_room_for_its_decision_is_refused_whole() -> None:
    crash = CrashDisk()
    disk = FaultDisk(crash)
    with opened(disk) as engine:
        full(disk)
        engine.send("t", b"0")
        tx = engine.transaction(tx_id="T")
        tx.send("t", b"x" * 2000)
        position = engine.stats().position
        with pytest.raises(StorageFull):
            tx.prepare()
        assert engine.stats().position == position
        assert engine.undecided() == []
        disk.heal()
        tx.prepare()
        tx.commit()
    check(crash)


@pytest.mark.parametrize("segment_bytes", [4096, 65536])
@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("decision", ["commit", "rollback"])
def test_a_full_disk_never_refuses_a_decision(
    decision: str, restart: bool, segment_bytes: int
) -> None:
    """Prepare reserves the room for the decision, whatever is written before it.

    Method: prepare several, then with no room left try to send between all decisions. In large
    segments they share one spare, and what a decision leaves of it is not for messages.
    """
    crash = CrashDisk()
    disk = FaultDisk(crash)
    engine = opened(disk, segment_bytes=segment_bytes)
    for number in range(6):
        prepared(engine, f"T{number}")
    full(disk)
    if restart:
        engine.close()
        engine = opened(disk, segment_bytes=segment_bytes)
    with engine:
        for number in range(6):
            send_until_full(engine)
            with pytest.raises(StorageFull):
                while True:
                    engine.send("small", b"")
            engine.decide(f"T{number}", decision)  # type: ignore[arg-type]
            assert engine.outcome(f"T{number}").state != "undecided"
        assert engine.undecided() == []
        assert len(bodies(engine, "t")) == (6 if decision == "commit" else 0)
    check(crash)


def test_a_chore_that_meets_a_full_disk_is_tried_again() -> None:
    crash = CrashDisk()
    disk = FaultDisk(crash)
    with opened(disk, checkpoint_bytes=500) as engine:
        for names in ("*.part", "*.idx.new", "*checkpoint.?"):
            disk.fail("create", error=errno.ENOSPC, persistently=True, names=names)
            disk.fail("write", error=errno.ENOSPC, persistently=True, names=names)
        for number in range(20):
            assert engine.send("t", b"x" * 400).offset == number
        assert engine.stats().trouble is not None
        assert engine.stats().failure is None
        assert engine.stats().checkpoints == 0
        disk.heal()
        engine.send("t", b"x")
        assert engine.stats().trouble is None
        assert engine.stats().checkpoints > 0
    check(crash)


class SmallDisk(CrashDisk):
    """A disk with limited room. Room that other programs take is theirs until room is given
    back.
    """

    room = 1 << 60
    held = 0

    def left(self) -> int:
        return self.room - sum(map(len, content(self).values()))


class SmallDirectory:
    """A directory of it, which asks for room before it gives any."""

    def __init__(self, disk: SmallDisk, directory: Directory) -> None:
        self._disk = disk
        self._directory = directory

    def __getattr__(self, name: str) -> Any:
        return getattr(self._directory, name)

    def create(self, name: str) -> File:
        file = self._directory.create(name)
        allocate = file.allocate

        def ask(size: int) -> None:
            if size > self._disk.left():
                raise OSError(errno.ENOSPC, "no room")
            allocate(size)

        file.allocate = ask  # type: ignore[method-assign]
        return file


class Small:
    """The disk as an engine sees it."""

    def __init__(self, disk: SmallDisk) -> None:
        self._disk = disk

    def random(self, size: int) -> bytes:
        return self._disk.random(size)

    def directory(self, path: str, *, make: bool) -> Any:
        return SmallDirectory(self._disk, self._disk.directory(path, make=make))


@pytest.mark.parametrize("decision", ["commit", "rollback"])
def test_a_kill_on_a_full_disk_takes_no_room_from_decisions(decision: str) -> None:
    """Recovery copies the tail into a reserved spare and makes another one at once. Later sends
    find no more room than before.
    """
    disk = SmallDisk()
    engine = opened(Small(disk), segment_bytes=65536)
    prepared(engine, "T")
    for _ in range(3):  # each kill would take one more
        disk.room -= disk.left()
        send_until_full(engine)
        killed, disk = engine, disk.after_kill()  # type: ignore[assignment]
        killed.close()
        disk.__class__ = SmallDisk
        disk.room -= disk.left()
        engine = opened(Small(disk), segment_bytes=65536)
        assert engine.stats().recovery.copied
        disk.room -= disk.left()
    with engine:
        assert engine.stats().spares >= engine.stats().spares_reserved == 1
        engine.decide("T", decision)  # type: ignore[arg-type]
    check(disk)


def test_a_decision_whose_reserved_room_is_gone_raises_storage_full() -> None:
    crash = CrashDisk()
    disk = FaultDisk(crash)
    with opened(disk) as engine:
        prepared(engine, "T", 1000)
        while engine.stats().position % 4096 < 3400:
            engine.send("fill", b"f" * 400)
        while inside(engine).journal.spares.give_up(ordinary=False):
            pass
        full(disk)
        with pytest.raises(StorageFull, match=r"set aside for it is gone.*Nothing was changed"):
            engine.decide("T", "commit")
        assert engine.outcome("T").state == "undecided"
        disk.heal()
        engine.decide("T", "commit")
    check(crash)


def room_of(disk: CrashDisk) -> SmallDisk:
    """`disk`, as large as what is on it."""
    disk.__class__ = SmallDisk
    assert isinstance(disk, SmallDisk)
    disk.room = 0
    disk.room = -disk.left()
    return disk


@pytest.mark.parametrize("when", ["sync data/000000.spare", "rename data/000000.spare"])
def test_a_kill_while_a_spare_is_made_leaves_a_full_disk_that_opens(when: str) -> None:
    """The copy needs the room of that spare."""
    disk = SmallDisk()
    with opened(Small(disk), segment_bytes=65536) as engine:
        kills: list[CrashDisk] = []
        disk.watch(lambda line: kills.append(disk.after_kill()) if when in line else None)
        engine.send("t", b"1")
        prepared(engine, "T")
        disk.watch(None)
    killed = room_of(kills[0])
    with opened(Small(killed), segment_bytes=65536):
        pass
    check(killed)


@pytest.mark.parametrize("sizes", [(4096, 8192), (8192, 4096)])
def test_spares_of_another_size_are_removed_to_make_room_for_the_copy(
    sizes: tuple[int, int],
) -> None:
    """Otherwise a directory could not be opened after a kill on a full disk."""
    disk = SmallDisk()
    before, now = sizes
    with opened(disk, segment_bytes=before) as engine:
        engine.send("t", b"1")
    with opened(Small(disk), segment_bytes=now) as engine:
        prepared(engine, "T")
        engine.send("t", b"2")
        spares = {len(data) for name, data in content(disk).items() if "spare" in name}
        assert now in spares <= {now, min(sizes)}
        killed = room_of(disk.after_kill())
    with opened(Small(killed), segment_bytes=now) as engine:
        assert engine.stats().recovery.copied
        assert bodies(engine, "t") == [b"1", b"2"]
        engine.decide("T", "commit")
    check(killed)


@pytest.mark.parametrize("room", ["create", "write", "sync"])
def test_a_spare_is_removed_to_make_room_for_cut_bytes(room: Operation) -> None:
    """The room of the old file is reserved again."""
    crash = CrashDisk()
    with opened(crash) as engine:
        engine.send("t", b"1")
        prepared(engine, "T")
        spares = engine.stats().spares
        assert spares > 1
        killed = crash.after_kill()
    end = len(content(killed)[SEGMENT].rstrip(b"\0"))
    overwrite(killed, SEGMENT, -(-end // 8) * 8, b"torn")
    disk = FaultDisk(killed)
    disk.fail(room, error=errno.ENOSPC, names="*.cut")  # only once: after it a spare is gone
    with opened(disk) as engine:
        assert engine.stats().recovery.cut_bytes
        assert engine.stats().spares >= spares
        engine.decide("T", "commit")
        assert len(bodies(engine, "t")) == 2
    check(killed)


@pytest.mark.parametrize("background", [False, True])
def test_recovery_reserves_room_for_decisions_again(background: bool) -> None:
    """It does so when the directory is opened, or in a later chore if there was no room then."""
    crash = CrashDisk()
    with opened(crash) as engine:
        prepared(engine, "T", 1000)
        needed = engine.stats().spares_reserved
        engine.checkpoint()
        killed = crash.after_kill()
    for name in content(killed):
        if "spare" in name:
            remove(killed, name)
    disk = FaultDisk(killed)
    full(disk)
    clock = FakeClock()
    with fmq.open("data", SMALL_OPTIONS, disk=disk, clock=clock, background=background) as engine:
        assert engine.stats().spares < needed
        assert not inside(engine).chores.idle()
        disk.heal()
        inside(engine).chores.attempt()
        while engine.stats().spares < needed:
            clock.advance(1.0)  # the thread has waited so long
            inside(engine).chores.attempt()
    with opened(killed) as engine:
        assert engine.stats().spares >= needed
    for name in content(killed):
        if "spare" in name:
            remove(killed, name)
    with opened(killed) as engine:
        assert engine.stats().spares >= needed


@pytest.mark.parametrize("names", ["*.spare", "*.spare.new"])
def test_a_full_directory_reuses_the_name_of_a_spare(names: str) -> None:
    """A new name may need a block before the old name releases its own."""
    crash = CrashDisk()
    disk = FaultDisk(crash)
    with opened(disk) as engine:
        for number in range(3):
            prepared(engine, f"T{number}", 1000)
        while engine.stats().position % 4096 < 3400:
            engine.send("fill", b"f" * 400)
        full(disk)
        disk.fail("rename", error=errno.ENOSPC, names=names)
        engine.decide("T0", "commit")
        assert len(bodies(engine, "t")) == 1
    check(crash)


def test_a_message_never_takes_a_reserved_spare_for_its_name() -> None:
    """The engine fails instead, and the next engine still has the room for the decision."""
    crash = CrashDisk()
    disk = FaultDisk(crash)
    with opened(disk, segment_bytes=65536) as engine:
        prepared(engine, "T")
        engine.send("fill", b"f" * 40000)
        assert engine.stats().spares > engine.stats().spares_reserved
        full(disk)
        disk.fail("rename", error=errno.ENOSPC, names="*.spare")
        with pytest.raises(EngineFailed):
            engine.send("fill", b"f" * 65000)
    disk.heal()
    full(disk)
    with opened(disk, segment_bytes=65536) as engine:
        engine.decide("T", "commit")
    check(crash)


@pytest.mark.parametrize("left", ["copy", "spare"])
def test_recovery_removes_what_a_killed_recovery_left(left: str) -> None:
    """Some file systems give the room back only when the directory is synced."""
    disk = SmallDisk()
    with opened(disk) as engine:
        prepared(engine, "T")
        killed = disk.after_kill()
    spares = [name for name in content(killed) if name.endswith(".spare")]
    remove(killed, *spares)
    folder = killed.directory("data", make=False)
    name = "00000000000000000000.copy" if left == "copy" else "000000.spare.new"
    folder.create(name).allocate(4096)
    folder.sync()
    held = Held(room_of(killed))
    with opened(held) as engine:
        assert [each.tx_id for each in engine.undecided()] == ["T"]
    check(killed)


class Held(Small):
    """It gives room back with the next sync of the directory."""

    def directory(self, path: str, *, make: bool) -> Any:
        return HeldDirectory(self._disk, self._disk.directory(path, make=make))


class HeldDirectory(SmallDirectory):
    def remove(self, name: str) -> None:
        file = self._directory.open(name)
        self._disk.room -= file.size()
        self._disk.held += file.size()
        self._directory.remove(name)

    def sync(self) -> None:
        self._directory.sync()
        self._disk.room += self._disk.held
        self._disk.held = 0


def test_a_copy_without_room_for_a_name_keeps_its_file() -> None:
    crash = CrashDisk()
    with opened(crash) as engine:
        engine.send("t", b"1")
        prepared(engine, "T")
        killed = crash.after_kill()
    disk = FaultDisk(killed)
    full(disk, "rename")
    disk.fail("rename", error=errno.ENOSPC, names="*.spare", persistently=True)
    with pytest.raises(StorageFull):
        opened(disk)  # not even over the segment's
    disk.heal()
    disk.fail("rename", error=errno.ENOSPC, names="*.spare")  # only once: to a new name
    with opened(disk) as engine:
        assert engine.stats().recovery.copied
        assert bodies(engine, "t") == [b"1"]
        engine.decide("T", "rollback")
    check(killed)
