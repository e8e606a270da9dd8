"""What the engine may rely on, whichever disk it runs on.

The same rules for RealDisk and for the disk in memory that the crash tests use: a rule that
only one of them kept would make the crash tests prove nothing. What a power cut leaves is
told in tests/testing/test_crash_disk.py, as only a disk in memory can show it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from fmq.errors import Locked, NotAStore
from fmq.machine.disk import Buffer, Directory, Disk
from fmq.posix import RealDisk, RealFile
from fmq.posix.memory_disk import MemoryDisk
from fmq.testing import CrashDisk, FaultDisk, PowerLoss


class MemoryFolders(MemoryDisk):
    """A disk in memory for the directory of a test, which lies below another one."""

    def __init__(self) -> None:
        super().__init__("./data", CrashDisk())

    def directory(self, path: str, *, make: bool) -> Directory:
        path = "./data" if os.path.normpath(path) == "data" else path
        return super().directory(path, make=make)


DISKS: dict[str, Callable[[], Disk]] = {
    "real": RealDisk,
    "real, holding the GIL": lambda: RealDisk(hold_gil=True),
    "crash": CrashDisk,
    "fault": lambda: FaultDisk(CrashDisk()),
    "memory": MemoryFolders,
}


@pytest.fixture(params=DISKS)
def disk(request: pytest.FixtureRequest) -> Disk:
    return DISKS[request.param]()


@pytest.fixture
def top(disk: Disk, tmp_path: Path) -> str:
    """A directory that is there, to make others in."""
    return str(tmp_path) if isinstance(disk, RealDisk) else "."


@pytest.fixture
def directory(disk: Disk, top: str) -> Directory:
    return disk.directory(f"{top}/data", make=True)


def refuses(work: Callable[[], object]) -> bool:
    """Return whether `work` fails like a call with a descriptor that is closed or of the
    wrong kind.
    """
    try:
        work()
    except ValueError:  # Python's own, for a descriptor of -1
        return True
    except OSError as error:
        return error.errno == errno.EBADF
    return False


def fill(directory: Directory, name: str, data: bytes) -> None:
    file = directory.create(name)
    file.write(0, (data,), sync=True)
    file.close()


def content(directory: Directory, name: str) -> bytes:
    file = directory.open(name)
    try:
        return file.read(0, 1 << 20)
    finally:
        file.close()


# --- directories ----------------------------------------------------------------------------


def test_a_made_directory_can_be_opened_again(disk: Disk, top: str) -> None:
    fill(disk.directory(f"{top}/data", make=True), "a", b"x")
    assert disk.directory(f"{top}/data", make=False).names() == ["a"]
    assert disk.directory(f"{top}/./data/", make=True).names() == ["a"]


def test_a_missing_directory_is_not_a_store(disk: Disk, top: str) -> None:
    with pytest.raises(NotAStore):
        disk.directory(f"{top}/data", make=False)


def test_only_the_last_part_of_a_path_is_made(disk: Disk, top: str) -> None:
    with pytest.raises(NotAStore, match="parent"):
        disk.directory(f"{top}/missing/data", make=True)
    disk.directory(f"{top}/above", make=True)
    disk.directory(f"{top}/above/data", make=True)
    assert disk.directory(f"{top}/above", make=False).names() == ["data"]


@pytest.mark.parametrize("make", [True, False])
def test_a_file_is_not_a_store(disk: Disk, top: str, directory: Directory, make: bool) -> None:
    fill(directory, "a", b"x")
    with pytest.raises(NotAStore):
        disk.directory(f"{top}/data/a", make=make)


def test_a_directory_knows_its_path(directory: Directory, top: str) -> None:
    assert directory.path == f"{top}/data"
    assert directory.subdirectory("below", make=True).path == f"{top}/data/below"


def test_a_subdirectory_has_names_of_its_own(directory: Directory) -> None:
    below = directory.subdirectory("below", make=True)
    fill(below, "a", b"x")
    assert directory.names() == ["below"]
    assert directory.subdirectory("below", make=True).names() == ["a"]
    assert directory.subdirectory("below", make=False).names() == ["a"]


def test_a_subdirectory_is_made_only_if_asked(directory: Directory) -> None:
    with pytest.raises(FileNotFoundError):
        directory.subdirectory("below", make=False)
    assert directory.names() == []


def test_a_file_is_refused_as_a_subdirectory(directory: Directory) -> None:
    fill(directory, "a", b"x")
    with pytest.raises(NotADirectoryError):
        directory.subdirectory("a", make=True)


def test_a_closed_directory_refuses_work(directory: Directory) -> None:
    directory.close()
    directory.close()
    for work in (directory.sync, lambda: directory.create("a"), lambda: directory.open("a")):
        assert refuses(work)


# --- names ----------------------------------------------------------------------------------


def test_a_created_file_is_empty_and_can_be_written(directory: Directory) -> None:
    file = directory.create("a")
    assert file.size() == 0
    assert file.read(0, 10) == b""
    file.write(0, (b"x",), sync=False)
    directory.sync()
    assert directory.names() == ["a"]


def test_a_name_that_is_taken_is_not_created_again(directory: Directory) -> None:
    fill(directory, "a", b"old")
    with pytest.raises(FileExistsError):
        directory.create("a")
    assert content(directory, "a") == b"old"


def test_only_an_existing_file_can_be_opened(directory: Directory) -> None:
    for write in (True, False):
        with pytest.raises(FileNotFoundError):
            directory.open("a", write=write)
    assert directory.names() == []


def test_a_directory_is_not_opened_for_writing(directory: Directory) -> None:
    directory.subdirectory("below", make=True)
    with pytest.raises(IsADirectoryError):
        directory.open("below", write=True)


def test_a_renamed_file_takes_the_place_of_another(directory: Directory) -> None:
    fill(directory, "new", b"new")
    fill(directory, "old", b"old")
    directory.rename("new", "old")
    assert directory.names() == ["old"]
    assert content(directory, "old") == b"new"


def test_a_rename_to_the_same_name_changes_nothing(directory: Directory) -> None:
    fill(directory, "a", b"x")
    directory.rename("a", "a")
    assert content(directory, "a") == b"x"


def test_a_missing_file_is_neither_renamed_nor_removed(directory: Directory) -> None:
    with pytest.raises(FileNotFoundError):
        directory.rename("a", "b")
    with pytest.raises(FileNotFoundError):
        directory.remove("a")


def test_a_file_is_not_renamed_over_a_directory(directory: Directory) -> None:
    fill(directory, "a", b"x")
    directory.subdirectory("below", make=True)
    with pytest.raises(IsADirectoryError):
        directory.rename("a", "below")
    with pytest.raises(IsADirectoryError):
        directory.remove("below")
    assert sorted(directory.names()) == ["a", "below"]


def test_a_removed_name_can_be_used_again(directory: Directory) -> None:
    fill(directory, "a", b"old")
    directory.remove("a")
    assert directory.names() == []
    fill(directory, "a", b"new")
    assert content(directory, "a") == b"new"


def test_an_open_file_can_be_read_after_its_name_is_gone(directory: Directory) -> None:
    """Readers finish a segment that retention removes or recovery replaces."""
    fill(directory, "a", b"old")
    fill(directory, "b", b"new")
    removed, renamed = directory.open("a", write=True), directory.open("b", write=True)
    directory.rename("b", "a")
    assert removed.read(0, 10) == b"old"
    removed.write(0, (b"xxx",), sync=True)
    renamed.write(0, (b"N",), sync=False)
    assert content(directory, "a") == b"New"


def test_identity_belongs_to_the_file_and_not_to_the_name(directory: Directory) -> None:
    fill(directory, "a", b"x")
    first = directory.open("a")
    again = directory.open("a")
    directory.rename("a", "b")
    fill(directory, "a", b"y")
    assert first.identity() == again.identity() == directory.open("b").identity()
    assert first.identity() != directory.open("a").identity()


# --- bytes ----------------------------------------------------------------------------------


@pytest.mark.parametrize("sync", [True, False])
def test_buffers_are_written_one_after_the_other(directory: Directory, sync: bool) -> None:
    file = directory.create("a")
    file.write(3, (b"ab", bytearray(b"cd"), memoryview(b"xefx")[1:3]), sync=sync)
    assert file.size() == 9
    assert file.read(0, 100) == b"\0\0\0abcdef"


@pytest.mark.parametrize("sync", [True, False])
def test_any_number_of_buffers_is_written(directory: Directory, sync: bool) -> None:
    """One system call takes at most 1,024 of them."""
    file = directory.create("a")
    file.write(1, [b"%04d" % i for i in range(3000)], sync=sync)
    assert file.read(1, 20000) == b"".join(b"%04d" % i for i in range(3000))


@pytest.mark.parametrize("sync", [True, False])
def test_writing_no_bytes_changes_nothing(directory: Directory, sync: bool) -> None:
    file = directory.create("a")
    file.write(100, (), sync=sync)
    file.write(100, (b"",), sync=sync)
    assert file.size() == 0


def test_a_write_replaces_only_what_it_covers(directory: Directory) -> None:
    file = directory.create("a")
    file.write(0, (b"0123456789",), sync=True)
    file.write(3, (b"abc",), sync=False)
    assert file.read(0, 100) == b"012abc6789"


def test_later_changes_of_a_buffer_do_not_matter(directory: Directory) -> None:
    file = directory.create("a")
    buffer = bytearray(b"before")
    file.write(0, (buffer,), sync=False)
    buffer[:] = b"after!"
    assert file.read(0, 10) == b"before"


def test_a_read_is_short_only_at_the_end(directory: Directory) -> None:
    file = directory.create("a")
    file.write(0, (b"0123456789",), sync=False)
    assert file.read(2, 3) == b"234"
    assert file.read(7, 100) == b"789"
    assert file.read(10, 1) == b""
    assert file.read(1000, 1) == b""
    assert file.read(5, 0) == b""


def test_allocated_room_reads_as_zeros_and_keeps_what_was_there(directory: Directory) -> None:
    file = directory.create("a")
    file.write(0, (b"abc",), sync=False)
    file.allocate(6)
    assert file.read(0, 100) == b"abc\0\0\0"
    file.allocate(2)
    assert file.size() == 6


def test_written_zeros_replace_what_was_there(directory: Directory) -> None:
    file = directory.create("a")
    file.write(0, (b"abcdef",), sync=False)
    file.write_zeros(4)
    assert file.read(0, 100) == b"\0\0\0\0ef"
    size = (1 << 20) + 5
    file.write_zeros(size)
    assert file.size() == size
    assert file.read(0, size) == bytes(size)


def test_zeros_are_written_in_pieces_of_128_kib(tmp_path: Path) -> None:
    """Small writes over such pieces are fast: the kernel keeps each as one folio. See
    docs/decisions/0028.
    """
    sizes: list[int] = []

    def write(fd: int, buffers: Sequence[Buffer], offset: int, flags: int) -> int:
        sizes.append(sum(map(len, buffers)))
        return os.pwritev(fd, buffers, offset, flags)

    path = tmp_path / "a"
    file = RealFile(os.open(path, os.O_RDWR | os.O_CREAT), str(path), write)
    file.write_zeros((1 << 20) + 5)
    file.close()
    assert sizes == [128 << 10] * 8 + [5]
    assert path.read_bytes() == bytes((1 << 20) + 5)


def test_every_handle_of_a_file_sees_a_write(directory: Directory) -> None:
    writer = directory.create("a")
    reader = directory.open("a")
    writer.write(0, (b"x",), sync=False)
    assert reader.read(0, 10) == b"x"
    assert reader.size() == 1


def test_a_file_open_for_reading_is_not_written(directory: Directory) -> None:
    fill(directory, "a", b"x")
    file = directory.open("a")
    for write in (
        lambda: file.write(0, (b"y",), sync=False),
        lambda: file.write(0, (b"y",), sync=True),
        lambda: file.allocate(10),
        lambda: file.write_zeros(10),
    ):
        assert refuses(write)
    assert content(directory, "a") == b"x"
    file.sync()  # a sync is allowed on a file open for reading


def test_a_closed_file_refuses_work(directory: Directory) -> None:
    file = directory.create("a")
    file.close()
    file.close()
    for work in (
        file.size,
        file.sync,
        file.identity,
        lambda: file.read(0, 1),
        lambda: file.write(0, (b"x",), sync=True),
        lambda: file.pin(exclusive=False),
    ):
        assert refuses(work)


# --- locks ----------------------------------------------------------------------------------


def test_a_directory_can_be_locked_only_once(disk: Disk, top: str, directory: Directory) -> None:
    release = directory.lock("LOCK")
    with pytest.raises(Locked) as caught:
        disk.directory(f"{top}/data", make=False).lock("LOCK")
    assert caught.value.path == directory.path
    assert caught.value.holder == f"process {os.getpid()}"
    release()
    directory.lock("LOCK")()


def test_the_lock_file_stays_after_unlocking(directory: Directory) -> None:
    directory.lock("LOCK")()
    assert directory.names() == ["LOCK"]


def test_a_lock_holds_even_if_its_file_is_removed(
    disk: Disk, top: str, directory: Directory
) -> None:
    release = directory.lock("LOCK")
    directory.remove("LOCK")
    other = disk.directory(f"{top}/data", make=False)
    for _ in range(2):
        with pytest.raises(Locked):
            other.lock("LOCK")
        assert other.locked_by("LOCK") is not None
    release()
    release()  # again: the number may be another file's by now
    assert other.locked_by("LOCK") is None
    again = other.lock("LOCK")
    release()
    assert directory.locked_by("LOCK") is not None
    again()


def test_a_lock_file_that_a_reader_shares_is_replaced(directory: Directory) -> None:
    """The reader has the old file open, and sees the lock by the identity of the new one."""
    directory.lock("LOCK")()
    reader = directory.open("LOCK")
    assert reader.identity() == directory.open("LOCK").identity()
    assert reader.pin(exclusive=False)
    release = directory.lock("LOCK")
    assert reader.identity() != directory.open("LOCK").identity()
    assert directory.locked_by("LOCK") is not None
    release()
    assert reader.identity() != directory.open("LOCK").identity()


def test_a_lock_file_with_an_exclusive_pin_counts_as_locked(directory: Directory) -> None:
    """An engine that could not lock the directory itself leaves such a pin."""
    directory.lock("LOCK")()
    other = directory.open("LOCK")
    assert other.pin(exclusive=True)
    with pytest.raises(Locked):
        directory.lock("LOCK")
    other.close()
    directory.lock("LOCK")()


def test_shared_pins_exclude_an_exclusive_one(directory: Directory) -> None:
    fill(directory, "a", b"x")
    first, second, third = (directory.open("a") for _ in range(3))
    assert first.pin(exclusive=False)
    assert second.pin(exclusive=False)
    assert not third.pin(exclusive=True)
    first.close()
    assert not third.pin(exclusive=True)
    second.close()
    assert third.pin(exclusive=True)


def test_an_exclusive_pin_excludes_all_others(directory: Directory) -> None:
    fill(directory, "a", b"x")
    first, second = directory.open("a"), directory.open("a")
    assert first.pin(exclusive=True)
    assert not second.pin(exclusive=False)
    assert not second.pin(exclusive=True)
    assert first.pin(exclusive=False)
    assert second.pin(exclusive=False)


def test_a_refused_exclusive_pin_ends_the_shared_one(directory: Directory) -> None:
    """flock does the same: it gives up the lock that it has before it asks for the other."""
    fill(directory, "a", b"x")
    first, second = directory.open("a"), directory.open("a")
    assert first.pin(exclusive=False)
    assert second.pin(exclusive=False)
    assert not first.pin(exclusive=True)
    assert second.pin(exclusive=True)


def test_opening_an_existing_directory_makes_it_durable() -> None:
    """The process that made it may have been killed before it synced the parent."""
    disk = CrashDisk(crash_at=1)
    with pytest.raises(PowerLoss):
        disk.directory("data", make=True)  # made, and the parent not synced
    killed = disk.after_kill()
    killed.directory("data", make=True)
    for state in killed.states():
        assert state.directory("data", make=False).names() == []


def test_an_os_error_has_the_current_name_of_a_renamed_file(tmp_path: Path) -> None:
    """After a spare has become a segment, no file has the spare's name."""
    directory = RealDisk().directory(str(tmp_path / "d"), make=True)
    fill(directory, "000001.spare", b"x")
    file = directory.open("000001.spare")  # and not to be written: so each write is an error
    directory.rename("000001.spare", "00000000000000004096.seg")
    with pytest.raises(OSError, match="Bad file descriptor") as caught:
        file.write(0, (b"y",), sync=True)
    assert caught.value.filename == str(tmp_path.resolve() / "d" / "00000000000000004096.seg")
    file.close()
    with pytest.raises(OSError, match="Bad file descriptor") as caught:
        file.write(0, (b"y",), sync=True)
    assert caught.value.filename.endswith("000001.spare")  # nothing knows any more than that
