"""What an engine holds besides its data: room, open files, and the time of the disk.

An engine may show every message and still keep room for a decision that was made, keep a deleted
file open, or never end its chores. None of that is seen in what it shows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from crash_tests.oracle import Violation
from fmq.machine.disk import Disk
from fmq.testing.crash_files import CrashDirectory

if TYPE_CHECKING:
    from fmq.engines.engine import Engine
    from fmq.testing import CrashDisk

STEP_OPERATIONS_MAX = 1_000  # limit of disk operations for one call and the chores after it


class Door:
    """A disk for one engine; it keeps the directories that the engine has opened."""

    def __init__(self, disk: CrashDisk) -> None:
        self._disk = disk
        self.directories: list[CrashDirectory] = []

    def directory(self, path: str, *, make: bool) -> CrashDirectory:
        directory = self._disk.directory(path, make=make)
        self.directories.append(directory)
        return directory

    def random(self, size: int) -> bytes:
        return self._disk.random(size)


def check_reserved(engine: Engine) -> None:
    """Raise Violation unless room is reserved exactly as long as a transaction is undecided."""
    stats = engine.stats()
    if stats.failure is None and bool(stats.spares_reserved) != bool(stats.undecided):
        raise Violation(
            "I16", f"{stats.spares_reserved} spares reserved for {stats.undecided} undecided"
        )


def deleted_files(door: Disk) -> list[str]:
    """Return the files that are deleted and still open, and those of an engine that is closed."""
    directories = door.directories if isinstance(door, Door) else []
    return [path for directory in directories for path in directory.deleted()]


def check_files(door: Disk, *, among: list[str] | None = None) -> None:
    """Raise Violation if a deleted file is open, or any file of an engine that is closed. With
    `among`, only those files are looked for.
    """
    left = [path for path in deleted_files(door) if among is None or path in among]
    if left:
        raise Violation("I17", f"deleted and still open, or not closed: {left}")
