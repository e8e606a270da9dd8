"""Finding out whether an engine had a directory open while it was being read.

The reader shares the lock of LOCK while it reads. An engine needs that lock alone, and waits for no
reader: it replaces a LOCK that is shared. The reader keeps the old file open, so it sees that the
new one is another file. So the reader notices every engine, even one that was open for a moment and
changed nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fmq.errors import Locked
from fmq.machine.disk import Directory, File
from fmq.recovery.layout import LOCK, LOCK_BYTES, lock_says


@contextmanager
def at_rest(directory: Directory) -> Iterator[None]:
    """Run a block that reads `directory` while no engine has it open.

    Raises Locked if an engine has it open, or opened it while the block ran, even if the block
    raises.
    """
    locked = directory.locked_by(LOCK)
    if locked is not None:
        raise locked
    before = _open_lock(directory)
    try:
        if before is not None and not before.pin(exclusive=False):
            raise directory.locked_by(LOCK) or _was_open(directory)
        failed: Exception | None = None
        try:
            yield
        except Exception as error:
            failed = error
        locked = _locked_since(directory, before)
        if locked is not None:
            raise locked
        if failed is not None:
            raise failed
    finally:
        if before is not None:
            before.close()


def _locked_since(directory: Directory, before: File | None) -> Locked | None:
    """Return the error if an engine has `directory` open, or has opened it since LOCK was
    `before`.
    """
    locked = directory.locked_by(LOCK)
    if locked is not None:
        return locked
    now = _open_lock(directory)
    if now is None:
        return None if before is None else _was_open(directory)
    try:
        same = before is not None and now.identity() == before.identity()
    finally:
        now.close()
    return None if same else _was_open(directory)


def _was_open(directory: Directory) -> Locked:
    """Return the error for an engine that had the directory open and has closed, as LOCK names
    it.
    """
    file = _open_lock(directory)
    if file is None:
        return Locked(directory.path, "an engine", closed=True)
    try:
        holder = lock_says(file.read(0, LOCK_BYTES)).holder
    finally:
        file.close()
    return Locked(directory.path, holder or "another process", closed=True)


def _open_lock(directory: Directory) -> File | None:
    try:
        return directory.open(LOCK)
    except FileNotFoundError:
        return None
