"""Lies of a disk that the harness must find out. Otherwise it would prove nothing that it finds no
failure.

Three are disks that break their word: each is the real one but for one promise that it does not
keep, so a store on it loses what it has acknowledged when the power fails, or when it is full. One
is told by the process under load, for kills, which lose nothing that was written.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from contextlib import suppress

from fmq.machine.disk import Buffer, Disk
from fmq.posix import RealDirectory, RealDisk, RealFile


def write_without_sync(fd: int, buffers: Sequence[Buffer], offset: int, flags: int) -> int:
    return os.pwritev(fd, buffers, offset)


class WritesAreNotSynced(RealDisk):
    """A lie of the disk: data that is written with a sync stays in the page cache."""

    def __init__(self) -> None:
        super().__init__()
        self._writer = write_without_sync


class _Unsynced(RealFile):
    def sync(self) -> None:
        pass


class _NamesAreNotSynced(RealDirectory):
    def sync(self) -> None:
        pass

    def _file(self, name: str, flags: int) -> RealFile:
        true = super()._file(name, flags)
        in_place = name.endswith((".seg", ".spare"))
        return _Unsynced(true._fd, true._path, true._writer if in_place else write_without_sync)


class NamesAreNotSynced(RealDisk):
    """A lie of the disk: creations, renames and removals are not synced. They reach the disk when
    the file system likes, mostly with the sync of any file that is new or grows. So only writes in
    place are synced here: right after a roll an index is written and a spare is made.
    """

    def directory(self, path: str, *, make: bool) -> RealDirectory:
        true = super().directory(path, make=make)
        return _NamesAreNotSynced(path, true._fd, true._writer, true._mounted)


def write_if_there_is_room(fd: int, buffers: Sequence[Buffer], offset: int, flags: int) -> int:
    try:
        return os.pwritev(fd, buffers, offset, flags)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        return sum(map(len, buffers))


class _SilentFile(RealFile):
    def allocate(self, size: int) -> None:
        with suppress(OSError):
            super().allocate(size)


class _SilentDirectory(RealDirectory):
    def _file(self, name: str, flags: int) -> RealFile:
        true = super()._file(name, flags)
        return _SilentFile(true._fd, true._path, write_if_there_is_room)


class FullIsSilent(RealDisk):
    """A lie of the disk: data without room is dropped, and no error is reported."""

    def directory(self, path: str, *, make: bool) -> RealDirectory:
        true = super().directory(path, make=make)
        return _SilentDirectory(path, true._fd, true._writer, true._mounted)


WRITES_NOT_SYNCED = "writes are not synced"
NAMES_NOT_SYNCED = "names are not synced"
FULL_IS_SILENT = "a full disk says nothing"
SAID_TOO_EARLY = "said before it is done"

DISKS = {
    WRITES_NOT_SYNCED: WritesAreNotSynced,
    NAMES_NOT_SYNCED: NamesAreNotSynced,
    FULL_IS_SILENT: FullIsSilent,
}


def disk_that(lies: str) -> Disk:
    """Return the disk with this lie; the honest one if the lie is not about a disk."""
    disk: Disk = DISKS.get(lies, RealDisk)()
    return disk
