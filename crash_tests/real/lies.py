"""Lies that the harness must find out, or its silence would prove nothing.

Two are disks that break their word: each is the real one but for one promise that it does not
keep, so a store on it loses what it has acknowledged when the power fails. The third is told by
the process under load, for kills, which lose nothing that was written.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from fmq.disk import Buffer, Disk
from fmq.real_disk import RealDirectory, RealDisk


def write_without_sync(fd: int, buffers: Sequence[Buffer], offset: int, flags: int) -> int:
    return os.pwritev(fd, buffers, offset)


class WritesAreNotSynced(RealDisk):
    """What is written with a sync stays in the page cache."""

    def __init__(self) -> None:
        super().__init__()
        self._writer = write_without_sync


class _NamesAreNotSynced(RealDirectory):
    def sync(self) -> None:
        pass


class NamesAreNotSynced(RealDisk):
    """Creations, renames and removals reach the disk when the file system likes."""

    def directory(self, path: str, *, make: bool) -> RealDirectory:
        true = super().directory(path, make=make)
        return _NamesAreNotSynced(path, true._fd, true._writer, remote=true.remote)


WRITES_NOT_SYNCED = "writes are not synced"
NAMES_NOT_SYNCED = "names are not synced"
SAID_TOO_EARLY = "said before it is done"

DISKS = {WRITES_NOT_SYNCED: WritesAreNotSynced, NAMES_NOT_SYNCED: NamesAreNotSynced}


def disk_that(lies: str) -> Disk:
    """The disk that lies so; the honest one if it is no disk's lie."""
    disk: Disk = DISKS.get(lies, RealDisk)()
    return disk
