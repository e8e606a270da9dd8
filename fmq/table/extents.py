"""What was found of a segment, and what of it is missing or not sound."""

from __future__ import annotations

from typing import NamedTuple

from fmq.errors import FmqError
from fmq.store.index.index import SegmentIndex
from fmq.store.journal.segment import Segment

SPLIT_BYTES = 32 << 20


class Extent(NamedTuple):
    """One segment, as far as it is proven durable."""

    path: str
    """The directory that it is read from: one of several, where there are copies."""
    segment: Segment
    end: int
    sealed: bool
    in_memory: SegmentIndex | None = None
    """The index, if it is in memory: it may be on its way to the disk."""


class LeftOut(NamedTuple):
    """A part of the journal that readers skip because it cannot be read."""

    file: str
    position: int
    skipped_bytes: int
    """How many are known to be missing; 0 where nothing tells."""
    reason: str


def left_out(error: FmqError | OSError, file: str, position: int, end: int) -> LeftOut:
    """Return the LeftOut for `file` from `position` to `end`, with `error` as its reason."""
    reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
    at = getattr(error, "position", position)
    if at != position:
        reason = f"at {at}: {reason}"
    return LeftOut(file, position, max(0, end - position), reason)
