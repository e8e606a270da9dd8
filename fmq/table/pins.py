"""Keeps retention from dropping what is being read, by a shared lock on a segment's file.

Retention takes an exclusive one before it drops a segment, drops the oldest first, and stops at
the first that it may not. So one lock on the first segment keeps the whole journal, and it ends
with the process that holds it, however that ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager

from fmq.machine.disk import Directory, Disk
from fmq.posix import RealDisk
from fmq.store.journal.segment import segment_name
from fmq.table.fleet import directories
from fmq.table.snapshot import see


@contextmanager
def pinned(paths: str | Sequence[str], *, disk: Disk | None = None) -> Iterator[dict[str, int]]:
    """Keep retention from dropping any part of these journals while the block runs.

    The value is the position of the first segment of each directory. Nothing is written, and
    engines go on writing. The room that retention would free becomes free after the block.
    """
    several = [paths] if isinstance(paths, str) else paths
    with ExitStack() as stack:
        yield {path: _pin(path, stack, disk) for path in directories(several, disk)}


def _pin(path: str, stack: ExitStack, disk: Disk | None) -> int:
    """Lock the first segment until `stack` ends. Return the segment's position."""
    with closing((disk or RealDisk()).directory(path, make=False)) as directory:
        while True:
            # Retention may have dropped the segment meanwhile: look again.
            journal = see(path, permissive=True, disk=disk)
            name = segment_name(journal.first)
            if not journal.segments or _lock(directory, name, stack):
                return journal.first


def _lock(directory: Directory, name: str, stack: ExitStack) -> bool:
    try:
        file = directory.open(name)
    except FileNotFoundError:
        return False
    with ExitStack() as unless_locked:
        unless_locked.callback(file.close)
        # Retention may have dropped it after it was opened and before it was locked.
        if not file.pin(exclusive=False) or not _still(directory, name, file.identity()):
            return False
        stack.push(unless_locked.pop_all())
    return True


def _still(directory: Directory, name: str, identity: tuple[int, int]) -> bool:
    try:
        with closing(directory.open(name)) as file:
            return file.identity() == identity
    except FileNotFoundError:
        return False
