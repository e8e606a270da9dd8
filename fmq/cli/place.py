"""A directory as a visitor sees it, who neither locks nor writes: what is there, who writes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import fmq
from fmq.disk import Directory
from fmq.errors import NotAStore
from fmq.posix import RealDisk
from fmq.recovery.layout import LOCK, LOCK_BYTES, QUARANTINE, lock_says, look

LOCKS = "/proc/locks"


@contextmanager
def visit(path: str) -> Iterator[Directory]:
    """The directory at `path`; NotAStore if no journal was begun there."""
    directory = RealDisk().directory(path, make=False)
    try:
        if look(directory).fresh:
            raise no_journal(path)
        yield directory
    finally:
        directory.close()


def served(path: str) -> fmq.RemoteEngine | None:
    """Return a client of the process that serves the directory; None if no process does."""
    try:
        return fmq.connect(path, start=False, retry_for=0.0)
    except (fmq.errors.NotServed, fmq.errors.NotAllowed, fmq.errors.Locked):
        return None


def reading(path: str) -> fmq.ReadOnlyEngine | fmq.RemoteEngine:
    """Return an engine to ask: a client of the process that serves the directory, which has the
    newest state, or an engine that reads the files, beside a process that may write them.
    """
    with visit(path):
        return served(path) or fmq.open(path, read_only=True)


def writing(path: str) -> fmq.Engine | fmq.RemoteEngine:
    """Return an engine that writes: that of the process that serves the directory, or our own."""
    with suppress(fmq.errors.NotServed):
        return fmq.connect(path, start=False, retry_for=0.0)
    return fmq.open(path, background=False)


def no_journal(path: str) -> NotAStore:
    """The error for an empty directory: perhaps another one was meant, or a mount is missing."""
    return NotAStore(
        f"{path}: no journal was ever begun here. Name the directory that a program "
        "gives to fmq.open(), or make one to look at with `fmq demo`."
    )


def writer_of(directory: Directory) -> str | None:
    """Return who has the directory open for writing, as far as this machine says.

    Trying the lock would tell, too, and for that moment refuse an engine that is opening.
    """
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
            # 1: FLOCK  ADVISORY  WRITE 4242 fe:00:5767169 0 EOF
            fields = line.split()
            if fields[1:4:2] == ["FLOCK", "WRITE"] and fields[5].rpartition(":")[2] in inodes:
                return True
    return False


def sizes_of(path: str) -> dict[str, int]:
    """The bytes that the files of each sort take, holes left out."""
    sizes = {"segments": 0, "indexes": 0, "spares": 0, QUARANTINE: 0, "other": 0}
    sorts = {
        ".seg": "segments",
        ".idx": "indexes",
        ".keys": "indexes",
        ".part": "indexes",
        ".spare": "spares",
    }
    for folder, _, names in os.walk(path):
        for name in names:
            sort = sorts.get(os.path.splitext(name)[1], "other")
            if os.path.basename(folder) == QUARANTINE:
                sort = QUARANTINE
            # Retention and recovery may take a file away meanwhile.
            with suppress(FileNotFoundError):
                sizes[sort] += os.lstat(os.path.join(folder, name)).st_blocks * 512
    return sizes
