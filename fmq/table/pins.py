"""Keeps retention from dropping what is being read: see fmq/recovery/segment_pin.py."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager

from fmq.machine.disk import Disk
from fmq.recovery.segment_pin import pin
from fmq.store.journal.segment import segment_name
from fmq.table.fleet import directories
from fmq.table.journal_places import directory_at
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
    with closing(directory_at(path, disk)) as directory:
        while True:
            # Retention may have dropped the segment meanwhile: look again.
            journal = see(path, permissive=True, disk=disk)
            name = segment_name(journal.first)
            if not journal.segments or pin(directory, name, stack):
                return journal.first
