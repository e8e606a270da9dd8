"""The derived files of a checkpoint: what an engine that begins there reads besides segments."""

from __future__ import annotations

from collections.abc import Iterator

from fmq.recovery.checkpoint import PART, Checkpoint
from fmq.recovery.timer_files import is_due_file
from fmq.store.index.catalog import SUFFIX as INDEX_SUFFIX
from fmq.store.journal.segment import segment_name


def derived_names(checkpoint: Checkpoint) -> Iterator[str]:
    """Yield the names of the indexes, of the part and of the files of timers that belong to
    `checkpoint`. All but the part never change.
    """
    *sealed, (base, *_) = checkpoint.segments
    for each in sealed:
        yield segment_name(each[0], INDEX_SUFFIX)
    if checkpoint.part_size:
        yield segment_name(base, PART)
    if checkpoint.timers is not None:
        yield from (name for name, *_ in checkpoint.timers["runs"])


def is_index(name: str) -> bool:
    """Return whether `name` is the name of the index of a sealed segment, whose bytes say all the
    same in each directory of a store.
    """
    return name.endswith(INDEX_SUFFIX)


def is_of_one_checkpoint(name: str) -> bool:
    """Return whether the file `name` says nothing without the checkpoint that names it."""
    return name.endswith(PART) or is_due_file(name)
