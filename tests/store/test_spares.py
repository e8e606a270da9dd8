"""Spare segments: whole files of zeros, made ahead, and the room that decisions are paid from."""

from __future__ import annotations

import errno
import threading
from itertools import count

import pytest

import fmq
from fmq.errors import StorageFull
from fmq.store.journal import spares as spares_module
from fmq.store.journal.spares import Spares
from fmq.testing import CrashDisk, FakeClock, FaultDisk
from tests.store.journals import directory_of, files_of
from tests.store.lines import Lines

CAPACITY = 4096


def spares_on(disk: CrashDisk | FaultDisk) -> Spares:
    return Spares(directory_of(disk), CAPACITY, CAPACITY)


def names_on(disk: CrashDisk | FaultDisk) -> list[str]:
    return sorted(directory_of(disk).names())


@pytest.mark.parametrize("zeros", [False, True])
def test_a_spare_is_a_durable_file_of_zeros_of_full_size(zeros: bool) -> None:
    disk = CrashDisk()
    spares = spares_on(disk)
    assert spares.make_ahead(zeros=zeros)
    assert spares.count() == 1
    directory_of(disk).sync()
    for state in disk.states():
        assert list(files_of(state).values()) == [bytes(CAPACITY)]


def test_a_spare_is_taken_only_once() -> None:
    spares = spares_on(CrashDisk())
    spares.make_ahead(zeros=False)
    taken = [spares.take(0, ordinary=True) for _ in range(3)]
    assert len({spare.name for spare in taken}) == 3
    assert spares.count() == 0


def test_only_one_spare_is_made_ahead() -> None:
    disk = CrashDisk()
    spares = spares_on(disk)
    for _ in range(3):
        assert spares.make_ahead(zeros=True)
    assert len(names_on(disk)) == spares.count() == 1


def test_spares_are_adopted_if_they_are_zeros_and_no_larger_than_a_segment() -> None:
    """A file whose name `Spares` would not give is left alone, whatever it holds."""
    disk = CrashDisk()
    directory = directory_of(disk)
    contents = {
        "000003.spare": bytes(CAPACITY),
        "000001.spare": bytes(CAPACITY - 1) + b"x",
        "000002.spare": bytes(CAPACITY - 8),
        "000004.spare": bytes(CAPACITY + 8),
        "000005.spare": b"",
        "000006.spare": bytes(CAPACITY - 4),
        "odd.spare": bytes(CAPACITY),
        "notes.txt": b"mine",
    }
    for name, data in contents.items():
        directory.create(name).write(0, (data,), sync=True)
    spares = Spares(directory, CAPACITY, CAPACITY)
    spares.adopt(directory.names())
    assert names_on(disk) == ["000002.spare", "000003.spare", "notes.txt", "odd.spare"]
    assert spares.count() == 2
    for _ in range(6):
        spares.take(0, ordinary=True)
    taken = set(names_on(disk)) - {"notes.txt", "odd.spare"}
    assert len(taken) == 6, "new ones took no name that was there"


def test_a_spare_with_a_nonzero_byte_is_not_adopted() -> None:
    for at in (0, 1, CAPACITY // 2, CAPACITY - 1):
        disk = CrashDisk()
        directory = directory_of(disk)
        file = directory.create("0.spare")
        file.allocate(CAPACITY)
        file.write(at, (b"\1",), sync=True)
        spares = Spares(directory, CAPACITY, CAPACITY)
        spares.adopt(directory.names())
        assert spares.count() == 0, at


def test_only_a_decision_may_take_a_reserved_spare() -> None:
    """On a full disk, an ordinary append may not take the last `needed` spares."""
    faults = FaultDisk(CrashDisk())
    spares = spares_on(faults)
    spares.reserve(2, CAPACITY)
    assert spares.count() == 2
    faults.fail("allocate", error=errno.ENOSPC, persistently=True)
    with pytest.raises(StorageFull):
        spares.take(0, ordinary=True)
    assert spares.count() == 2
    for _ in range(2):
        spares.take(0, ordinary=False)
    with pytest.raises(StorageFull):
        spares.take(0, ordinary=False)


def test_an_ordinary_append_takes_a_spare_above_the_reserve() -> None:
    spares = spares_on(CrashDisk())
    spares.reserve(2, CAPACITY)
    spares.take(0, ordinary=True)
    assert spares.count() == 2


def test_a_full_disk_refuses_more_spares_and_leaves_the_reserve_unchanged() -> None:
    faults = FaultDisk(CrashDisk())
    spares = spares_on(faults)
    spares.reserve(1, CAPACITY)
    faults.fail("allocate", nth=1, error=errno.ENOSPC)
    with pytest.raises(StorageFull):
        spares.reserve(4, CAPACITY)
    assert spares.needed == 1
    assert len(names_on(faults)) == spares.count()
    spares.reserve(4, CAPACITY)
    assert spares.count() == 4


@pytest.mark.parametrize("operation", ["create", "allocate", "sync"])
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_refuses_a_spare_and_leaves_nothing_behind(operation, error: int) -> None:
    faults = FaultDisk(CrashDisk())
    spares = spares_on(faults)
    faults.fail(operation, error=error, short=100)
    with pytest.raises(StorageFull, match="refused whole"):
        spares.take(0, ordinary=True)
    assert names_on(faults) == []
    assert spares.take(0, ordinary=True).file.size() == CAPACITY


def test_make_ahead_on_a_full_disk_notes_it_and_can_be_retried() -> None:
    faults = FaultDisk(CrashDisk())
    spares = spares_on(faults)
    faults.fail("allocate", error=errno.ENOSPC)
    assert not spares.make_ahead(zeros=True)
    assert spares.failed is not None
    assert spares.make_ahead(zeros=True)
    assert spares.failed is None


def test_an_io_error_is_not_reported_as_a_full_disk() -> None:
    faults = FaultDisk(CrashDisk())
    spares = spares_on(faults)
    faults.fail("allocate", error=errno.EIO)
    with pytest.raises(OSError, match="Input/output") as caught:
        spares.take(0, ordinary=True)
    assert caught.value.errno == errno.EIO
    assert names_on(faults) == []


def test_spares_stay_for_the_next_engine() -> None:
    disk = CrashDisk()
    spares = spares_on(disk)
    spares.reserve(2, CAPACITY)
    spares.close()
    assert spares.count() == 0
    again = spares_on(disk)
    again.adopt(names_on(disk))
    assert again.count() == 2


def test_two_threads_never_give_spares_the_same_name() -> None:
    """Hold one thread at each line of making a spare, while another thread takes one."""
    for at in count():
        disk = CrashDisk()
        spares = spares_on(disk)
        others: list[threading.Thread] = []

        def take(spares: Spares = spares, others: list[threading.Thread] = others) -> None:
            thread = threading.Thread(target=lambda: spares.take(0, ordinary=True), daemon=True)
            thread.start()
            thread.join(0.02 if spares.lock.locked() else None)
            others.append(thread)

        lines = Lines(spares_module, at, take)
        lines.run(lambda: spares.make_ahead(zeros=False))  # noqa: B023 - called at once
        for thread in others:
            thread.join()
        assert spares.count() + len(others) == len(names_on(disk)), lines.met
        if lines.count <= at:
            return


@pytest.mark.parametrize(("size", "zeroed"), [(64 << 10, 7), (3 << 20, 1)])
def test_a_journal_that_grows_by_large_writes_gets_no_zeros(size: int, zeroed: int) -> None:
    """However slowly it grows: they would write everything twice. The first one has zeros, as
    nothing is known yet.
    """
    clock, disk = FakeClock(), CrashDisk()
    options = fmq.Options(first_segment_bytes=4 << 20, segment_bytes=4 << 20)
    with fmq.open("shop", options, disk=disk, clock=clock, background=False) as engine:
        before = disk.operations
        for _ in range((22 << 20) // size):
            clock.advance(1)
            engine.send("a", bytes(size))
    assert sum(each.startswith("write_zeros") for each in disk.history[before:]) == zeroed
