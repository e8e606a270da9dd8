"""Disk space that is set aside, so that a full disk can refuse a message but never a decision.

A prepare reserves what its transaction may still write: its commit, with copies of its bodies, or
its roll back, and one relocation. The room is in spare segments, which ordinary appends may not
take.
"""

from __future__ import annotations

import contextlib

from fmq.errors import StorageError
from fmq.store.journal.segment import HEADER_BYTES
from fmq.store.journal.spares import Spares
from fmq.tx.commands.limits import FRAME_BYTES, REASON_BYTES_MAX


class Reserve:
    """Counts the bytes that undecided transactions may still need. The caller holds the engine's
    lock.
    """

    def __init__(self, spares: Spares, append_bytes_max: int) -> None:
        self._spares = spares
        self._append_bytes_max = append_bytes_max
        self._bytes = 0

    @property
    def bytes(self) -> int:
        """The bytes set aside: more than twice what undecided transactions take on disk."""
        return self._bytes

    @staticmethod
    def needed_for(size: int) -> int:
        """Return how many more bytes a transaction may write if its prepared records take `size`
        bytes.
        """
        return 2 * size + FRAME_BYTES + 2 * REASON_BYTES_MAX

    def take(self, size: int) -> None:
        """Set `size` bytes aside. Raises StorageFull if there is no room, and then nothing was
        changed.
        """
        self._spares.reserve(*self._segments(self._bytes + size))
        self._bytes += size

    def remember(self, size: int) -> None:
        """Count `size` bytes as set aside, because an earlier engine has set them aside."""
        self._bytes += size
        self._spares.need(*self._segments(self._bytes))

    def make_up(self) -> None:
        """Make spares again for what earlier engines had set aside, as far as the disk has room. A
        kill may have taken some of them. If room lacks, the chores go on trying.
        """
        with contextlib.suppress(StorageError, OSError):
            self._spares.make_up()

    def give_back(self, size: int) -> None:
        """Release `size` bytes."""
        self._bytes -= size
        assert self._bytes >= 0
        self._spares.need(*self._segments(self._bytes))

    def _segments(self, size: int) -> tuple[int, int]:
        """Return how many empty segments are sure to hold appends of `size` bytes in total, and
        how large each of them has to be.
        """
        # An append is not split, so the end of a segment may stay empty. But the appends in two
        # consecutive segments are larger than one segment.
        return -(-2 * size // self._append_bytes_max), 2 * size + HEADER_BYTES
