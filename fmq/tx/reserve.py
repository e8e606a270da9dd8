"""Room set aside so that a full disk can refuse a message but never a decision.

A prepare reserves what its transaction may still have to write: its commit, as copies, or its
roll back, and one relocation. The room is that of spare segments, which ordinary appends may
not take.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from fmq.errors import StorageError
from fmq.store.encoding import size_of
from fmq.store.kinds import Record
from fmq.store.record import aligned
from fmq.store.spares import Spares
from fmq.tx.limits import FRAME_BYTES, REASON_BYTES_MAX


def size_of_all(records: Iterable[Record]) -> int:
    """What `records` take in the journal."""
    return sum(aligned(record.size or size_of(record)) for record in records)


class Reserve:
    """The bytes that undecided transactions may still need. Under the engine's lock."""

    def __init__(self, spares: Spares, append_bytes_max: int) -> None:
        self._spares = spares
        self._append_bytes_max = append_bytes_max
        self._bytes = 0

    @property
    def bytes(self) -> int:
        """All that is set aside: more than twice what is undecided takes on the disk."""
        return self._bytes

    @staticmethod
    def needed_for(size: int) -> int:
        """What a transaction may still write whose PREPARE and PRE_MESSAGEs take `size`."""
        return 2 * size + FRAME_BYTES + 2 * REASON_BYTES_MAX

    def take(self, size: int) -> None:
        """Set `size` bytes aside; StorageFull, and nothing changed, if there is no room."""
        self._spares.reserve(self._segments(self._bytes + size))
        self._bytes += size

    def remember(self, size: int) -> None:
        """`size` bytes were set aside by an earlier engine."""
        self._bytes += size
        self._spares.needed = self._segments(self._bytes)

    def make_up(self) -> None:
        """Have what earlier engines set aside, as far as there is room: kills may have taken some
        of it. Housekeeping tries on.
        """
        with contextlib.suppress(StorageError, OSError):
            self._spares.reserve(self._spares.needed)

    def give_back(self, size: int) -> None:
        """`size` bytes are not needed any more."""
        self._bytes -= size
        assert self._bytes >= 0
        self._spares.needed = self._segments(self._bytes)

    def _segments(self, size: int) -> int:
        """How many empty segments hold appends of `size` bytes together, however they fall."""
        # An append is not split, so a segment may be left early, but two in a row hold more
        # than one segment's worth.
        return -(-2 * size // self._append_bytes_max)
