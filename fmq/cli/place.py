"""A directory as a visitor sees it, without locking or writing: its files, and who has it open."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import fmq
from fmq.errors import NotAStore
from fmq.machine.disk import Directory
from fmq.posix import RealDisk
from fmq.recovery.layout import LOCK, LOCK_BYTES, QUARANTINE, lock_says, look

LOCKS = "/proc/locks"


@contextmanager
def visit(path: str) -> Iterator[Directory]:
    """Return the directory at `path`. Raises NotAStore if no journal was begun in it."""
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


@contextmanager
def asked(path: str, engine: fmq.ReadOnlyEngine) -> Iterator[fmq.ReadOnlyEngine | fmq.RemoteEngine]:
    """Yield a client of the process that serves the directory, because it has the newest state. If
    none serves, yield `engine`.
    """
    client = served(path)
    if client is None:
        yield engine
        return
    with client:
        yield client


def reading(path: str) -> fmq.ReadOnlyEngine | fmq.RemoteEngine:
    """Return an engine to ask: a client of the process that serves the directory, because it has
    the newest state. If none serves, return an engine that reads the files, beside any process that
    writes them.
    """
    with visit(path):
        return served(path) or fmq.open(path, read_only=True)


def writing(path: str, *, create: bool = False) -> fmq.Engine | fmq.RemoteEngine:
    """Return an engine that writes: a client of the process that serves the directory, or else our
    own engine. Raises NotAStore if no journal was begun there, unless it may `create` one: fmq.open
    would make the directory of a mistyped name.
    """
    if not create:
        with visit(path):
            pass
    with suppress(fmq.errors.NotServed):
        return fmq.connect(path, start=False, retry_for=0.0)
    return fmq.open(path, background=False)


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


def sizes_of(path: str) -> dict[str, int]:
    """Return the bytes on disk of each kind of file; holes do not count."""
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
            # Retention or recovery may remove a file meanwhile.
            with suppress(FileNotFoundError):
                sizes[sort] += os.lstat(os.path.join(folder, name)).st_blocks * 512
    return sizes
