"""A disk that fails: which operation, when, and with what error."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from fmq.machine.disk import Directory, File
from fmq.testing import CrashDisk, FaultDisk
from fmq.testing.faults import Operation
from tests.testing.outcomes import content, failing, made, without_faults

OPERATIONS: dict[Operation, Callable[[Directory, File], object]] = {
    "open": lambda directory, file: directory.open("a"),
    "create": lambda directory, file: directory.create("b"),
    "read": lambda directory, file: file.read(0, 1),
    "write": lambda directory, file: file.write(0, (b"y",), sync=False),
    "allocate": lambda directory, file: file.allocate(10),
    "sync": lambda directory, file: file.sync(),
    "rename": lambda directory, file: directory.rename("a", "b"),
    "remove": lambda directory, file: directory.remove("a"),
    "mkdir": lambda directory, file: directory.subdirectory("below", make=True),
    "directory sync": lambda directory, file: directory.sync(),
}


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_an_operation_set_to_fail_fails_and_does_nothing(operation: Operation, error: int) -> None:
    crash, disk, file = without_faults(b"x")
    directory = made(disk)
    before = crash.fingerprint()
    disk.fail(operation, error=error)
    assert failing(lambda: OPERATIONS[operation](directory, file)) == error
    assert crash.fingerprint() == before
    assert failing(lambda: OPERATIONS[operation](directory, file)) is None, "only once"


@pytest.mark.parametrize("operation", OPERATIONS)
def test_operations_of_other_kinds_do_not_fail(operation: Operation) -> None:
    _, disk, file = without_faults(b"x")
    directory = made(disk)
    for other in OPERATIONS:
        if other != operation:
            disk.fail(other, persistently=True)
    OPERATIONS[operation](directory, file)


def test_a_close_or_unlock_that_fails_takes_effect_all_the_same() -> None:
    """The kernel also releases the number and the lock first, and then reports the error."""
    _, disk, file = without_faults(b"x")
    directory = made(disk)
    release = directory.lock("LOCK")
    disk.fail("unlock")
    assert failing(release) == errno.EIO
    assert directory.locked_by("LOCK") is None
    for each in (file, directory):
        disk.fail("close")
        assert failing(each.close) == errno.EIO
    assert failing(lambda: file.read(0, 1)) == errno.EBADF
    assert failing(directory.names) == errno.EBADF


@pytest.mark.parametrize("operation", OPERATIONS)
def test_operations_are_counted_by_kind(operation: Operation) -> None:
    _, disk, file = without_faults(b"x")
    directory = made(disk)
    before = {kind: disk.count(kind) for kind in OPERATIONS}
    OPERATIONS[operation](directory, file)
    after = {kind: disk.count(kind) for kind in OPERATIONS}
    assert after == before | {operation: before[operation] + 1}


def test_each_operation_of_a_workload_can_be_made_to_fail() -> None:
    """Count the operations first, then fail each in turn. This is the purpose of the class."""

    def work(disk: FaultDisk) -> int:
        file = made(disk).create("a")
        for i in range(5):
            try:
                file.write(i, (b"x",), sync=True)
            except OSError:
                return i
        return -1

    disk = FaultDisk(CrashDisk())
    assert work(disk) == -1
    for nth in range(disk.count("write")):
        disk = FaultDisk(CrashDisk())
        disk.fail("write", nth=nth)
        assert work(disk) == nth


def test_nth_counts_operations_after_the_call_of_fail() -> None:
    _, disk, file = without_faults(b"x")
    disk.fail("write", nth=1)
    file.write(0, (b"1",), sync=True)
    assert failing(lambda: file.write(0, (b"2",), sync=True)) == errno.EIO
    file.write(0, (b"3",), sync=True)


def test_a_persistent_fault_lasts_until_it_is_healed() -> None:
    _, disk, file = without_faults(b"x")
    disk.fail("write", nth=1, error=errno.ENOSPC, persistently=True)
    file.write(0, (b"1",), sync=True)
    for _ in range(3):
        assert failing(lambda: file.write(0, (b"2",), sync=True)) == errno.ENOSPC
    disk.heal()
    file.write(0, (b"3",), sync=True)
    assert content(disk, "a") == b"3"


def test_only_files_that_match_names_fail() -> None:
    _, disk, file = without_faults(b"x")
    other = made(disk).create("b.idx")
    disk.fail("write", nth=1, names="*.idx")
    for _ in range(3):
        file.write(0, (b"1",), sync=True)
    other.write(0, (b"1",), sync=True)
    assert failing(lambda: other.write(0, (b"2",), sync=True)) == errno.EIO
    assert disk.count("write", names="*.idx") == 2


def test_a_renamed_open_file_fails_under_its_new_name() -> None:
    _, disk, file = without_faults(b"x")
    made(disk).rename("a", "a.seg")
    disk.fail("write", names="*.seg")
    assert failing(lambda: file.write(0, (b"2",), sync=True)) == errno.EIO


def test_making_a_directory_may_fail() -> None:
    disk = FaultDisk(CrashDisk())
    disk.fail("mkdir", error=errno.ENOSPC)
    assert failing(lambda: made(disk)) == errno.ENOSPC
    assert disk.directory(".", make=False).names() == []
    made(disk)
    assert disk.count("mkdir") == 2


def test_before_calls_a_function_before_the_named_operation() -> None:
    """The thread that asks for the operation calls it. If the function raises, so does the
    operation.
    """
    disk = FaultDisk(CrashDisk())
    directory = disk.directory("d", make=True)
    file = directory.create("a")
    file.write(0, (b"old",), sync=True)
    seen: list[bytes] = []

    def refuse() -> None:
        raise OSError(errno.EIO, "refused")

    disk.before("write", lambda: seen.append(file.read(0, 3)), nth=1, names="*/a")
    disk.before("write", refuse, nth=2)
    for body in (b"one", b"two"):
        file.write(0, (body,), sync=True)
    assert seen == [b"one"]
    with pytest.raises(OSError, match="refused"):
        file.write(0, (b"new",), sync=True)
    assert file.read(0, 3) == b"two"
