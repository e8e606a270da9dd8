"""A directory as a visitor sees it, without locking or writing: its files, and who has it open."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

import fmq
from fmq.arguments.path import ADDRESS, check_local
from fmq.errors import NotAStore
from fmq.machine.disk import Directory, Disk
from fmq.posix import RealDisk
from fmq.recovery.layout import LOCK, LOCK_BYTES, lock_says, look

LOCKS = "/proc/locks"
PATIENCE_SECONDS = 10.0


def connected(path: str, *, resolve: Mapping[str, str] | None = None) -> fmq.RemoteEngine:
    """Return a client of the process that serves the directory at `path`.

    Raises NotServed: at once if no process serves or it takes no more clients, and after
    PATIENCE_SECONDS if one takes the connection and does not answer, because it may be slow.
    """
    try:
        fmq.connect(path, start=False, retry_for=0.0).close()
    except fmq.errors.NotServed as error:
        if not isinstance(error.__cause__, BlockingIOError):
            raise
    return fmq.connect(path, start=False, retry_for=PATIENCE_SECONDS, resolve=resolve)


@contextmanager
def visit(path: str) -> Iterator[Directory]:
    """Return the directory at `path`, or the home at that address. Raises NotAStore if no journal
    was begun in it.
    """
    directory = _disk_of(path).directory(path, make=False)
    try:
        if look(directory).fresh:
            raise no_journal(path)
        yield directory
    finally:
        directory.close()


def _disk_of(path: str) -> Disk:
    if not ADDRESS.match(path):
        return RealDisk()
    from fmq.home.home_reader import home_to_read  # imported here: few look at a home

    disk = home_to_read(path)
    if disk is None:
        check_local(path)  # raises for any other address
        return RealDisk()
    return disk


def no_journal(path: str) -> NotAStore:
    """Return the error for an empty directory: it may be the wrong one, or a mount is missing."""
    return NotAStore(
        f"{path}: no journal was ever begun here. Name the directory that a program "
        "gives to fmq.open(), or make one to look at with `fmq demo`."
    )


def writer_of(directory: Directory) -> str | None:
    """Return which process has the directory open for writing, as far as this machine knows.

    Trying the lock would tell, too, and for that moment refuse an engine that is opening.
    """
    owner: str | None = getattr(directory, "owner", None)
    if owner is not None:  # a home: its owner may have ended
        return owner
    holder, inodes = (
        f"an engine whose {LOCK} has been removed",
        {str(os.stat(directory.path).st_ino)},
    )
    with suppress(FileNotFoundError):
        lock = directory.open(LOCK)
        try:
            inodes.add(str(lock.identity()[1]))
            holder = lock_says(lock.read(0, LOCK_BYTES)).holder
        finally:
            lock.close()
    return holder if _is_locked(inodes) else None


def _is_locked(inodes: set[str]) -> bool:
    with suppress(OSError), open(LOCKS) as locks:
        for line in locks:
            # A line such as "1: FLOCK ADVISORY WRITE 4242 fe:00:5767169 0 EOF".
            fields = line.split()
            if fields[1:4:2] == ["FLOCK", "WRITE"] and fields[5].rpartition(":")[2] in inodes:
                return True
    return False
