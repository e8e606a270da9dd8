"""What the tests here ask of a disk: its files, and what a power cut may leave of them."""

from __future__ import annotations

from collections.abc import Callable

from fmq.machine.disk import Directory, Disk, File
from fmq.testing import CrashDisk, FaultDisk


def made(disk: Disk) -> Directory:
    """The directory that the test works in; making it takes two operations."""
    return disk.directory("data", make=True)


def content(disk: Disk, name: str) -> bytes | None:
    """All of the file `name`; None if it is not there."""
    directory = disk.directory("data", make=False)
    if name not in directory.names():
        return None
    file = directory.open(name)
    return file.read(0, file.size())


def outcomes(disk: CrashDisk, name: str) -> set[bytes | None]:
    """Return what may be found under `name` after a power cut. None stands for no file."""
    return {content(state, name) for state in disk.states()}


def listings(disk: CrashDisk) -> set[frozenset[str]]:
    """Return the sets of names that may be found after a power cut."""
    return {frozenset(made(state).names()) for state in disk.states()}


def without_faults(data: bytes = b"") -> tuple[CrashDisk, FaultDisk, File]:
    """A disk without faults, and a durable file "a" on it."""
    crash = CrashDisk()
    disk = FaultDisk(crash)
    file = made(disk).create("a")
    if data:
        file.write(0, (data,), sync=True)
    made(disk).sync()
    return crash, disk, file


def failing(work: Callable[[], object]) -> int | None:
    """The number of the error that `work` fails with."""
    try:
        work()
    except OSError as error:
        return error.errno
    return None
