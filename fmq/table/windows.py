"""Reads a segment in large pieces that hold the wanted records and little else."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from fmq.machine.disk import File
from fmq.store.bytes.record import HEAD_BYTES_MIN
from fmq.table.entries import Column, RunEntries

WINDOW_BYTES = 8 << 20
# Reading up to this many bytes between two records costs less than a second read.
GAP_BYTES = 16 << 10
HEAD_BYTES = 4 << 10  # bytes of a record whose bodies are not wanted


class Piece:
    """The bytes of a segment from place `start` on."""

    __slots__ = ("data", "start")

    def __init__(self, start: int, data: bytes) -> None:
        self.start = start
        self.data = data

    def at(self, place: int) -> int:
        """Return the index in `data` of the record at `place`; -1 if its start is not in the
        piece.
        """
        at = place - self.start
        return at if 0 <= at <= len(self.data) - HEAD_BYTES_MIN else -1


class Windows:
    """Reads the wanted records of a segment."""

    def __init__(self, file: File, *, bodies: bool) -> None:
        self._file = file
        self._bodies = bodies
        self._aside = Piece(0, b"")

    def over(self, entries: RunEntries) -> Iterator[tuple[Piece, int, int]]:
        """Yield pieces, each with the number of its first entry and of the entry after its last
        one.

        A piece holds the heads of its records and, if wanted, all but the longest bodies.
        """
        begins = entries.places
        ends = np.where(entries.holders == begins, entries.stops, begins + HEAD_BYTES)
        if not self._bodies:
            ends = np.minimum(ends, begins + HEAD_BYTES)
        ends = np.maximum.accumulate(ends) if len(ends) else ends
        for low, high in _without_gaps(begins, ends):
            while low < high:
                limit = begins[low] + WINDOW_BYTES
                stop = low + max(1, int(np.searchsorted(ends[low:high], limit, side="right")))
                start = int(begins[low])
                yield Piece(start, self._read(start, int(ends[stop - 1]) - start)), low, stop
                low = stop

    def aside(self, place: int, size: int) -> Piece:
        """Return a piece of `size` bytes at `place`, far from the other wanted records."""
        piece = self._aside
        if not piece.start <= place <= place + size <= piece.start + len(piece.data):
            ahead = size if size > WINDOW_BYTES // 8 else WINDOW_BYTES // 8
            piece = self._aside = Piece(place, self._read(place, ahead))
        return piece

    def _read(self, place: int, size: int) -> bytes:
        return self._file.read(place, size)


def _without_gaps(begins: Column, ends: Column) -> Iterator[tuple[int, int]]:
    """Yield ranges of entries that lie so close together that reading the gaps is cheap."""
    breaks = np.flatnonzero(begins[1:] - ends[:-1] > GAP_BYTES) + 1
    edges = [0, *breaks.tolist(), len(begins)]
    return ((low, high) for low, high in itertools.pairwise(edges) if low < high)
