"""Reads plain records, which are most, a window at a time: all their heads are one numpy table.

A plain record is a MESSAGE with bodies only, of equal length, not compressed, and not of more
messages than a batch has rows. For each record there are two checksums and one slice, which run in
C.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from typing import Any
from zlib import crc32

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from fmq.store.bytes.columns import COMPRESSED, HEADERS, KEYS, LENGTHS, TAGS
from fmq.store.bytes.extension import REQUEST, REQUEST_BYTES
from fmq.store.bytes.kinds import MESSAGE
from fmq.store.bytes.record import EXTENDED, MAGICS, MESSAGE_HEAD, PREFIX_BYTES
from fmq.table.entries import Column, RunEntries
from fmq.table.gather import ROWS
from fmq.table.windows import Piece

NOT_PLAIN = COMPRESSED | LENGTHS | KEYS | TAGS | HEADERS
STRETCH_MIN = 16  # a table of fewer records would cost more than it saves
VIEW_BYTES = 4 << 10
MAGIC_NUMBERS = [int.from_bytes(magic, "little") for magic in MAGICS]
HEAD = np.dtype(
    [
        ("magic", "<u4"),
        ("crc", "<u4"),
        ("size", "<u4"),
        ("head_size", "<u4"),
        ("position", "<u8"),
        ("lag", "<u4"),
        ("bodies_crc", "<u4"),
        ("kind", "u1"),
        ("flags", "u1"),
        ("queue", "<u2"),
        ("offset", "<u8"),
        ("time_us", "<i8"),
        ("messages", "<u4"),
        ("names", "u1", 3),
    ]
)
assert HEAD.itemsize == PREFIX_BYTES + MESSAGE_HEAD.size


class PlainRecords:
    """The plain records of `piece`, among those in `entries[low:high]`."""

    def __init__(
        self,
        piece: Piece,
        entries: RunEntries,
        low: int,
        high: int,
        base: int,
        *,
        bodies: bool,
        extras: bool,
    ) -> None:
        """`bodies` and `extras` say what the reader wants. With `bodies`, a plain record lies in
        `piece` with all its bodies; otherwise its head is enough. With `extras`, its extension says
        nothing about messages.
        """
        self._data = piece.data
        self._low = low
        self._bodies = bodies
        places = entries.places[low:high]
        last = len(piece.data) - HEAD.itemsize
        if last < 0 or high - low < STRETCH_MIN:
            self._plain = np.zeros(high - low, bool)
            return
        self._starts = starts = places - piece.start
        fronts = sliding_window_view(np.frombuffer(piece.data, np.uint8), HEAD.itemsize)
        self._heads = heads = fronts[np.minimum(starts, last)].view(HEAD)[:, 0]
        self._body_starts = starts + heads["head_size"]
        self._ends = starts + heads["size"]
        self._counts = counts = entries.counts[low:high]
        sizes = self._ends - self._body_starts
        whole = self._ends if bodies else self._body_starts
        self._plain = (
            (starts <= last)
            & (whole <= len(piece.data))
            & np.isin(heads["magic"], MAGIC_NUMBERS)
            & (heads["kind"] == MESSAGE)
            & (heads["flags"] & NOT_PLAIN == 0)
            # The record has the names of no producer and no transaction.
            & ~heads["names"][:, 1:].any(axis=1)
            & (heads["position"] == places + base)
            & (heads["offset"] == entries.offsets[low:high])
            & (heads["messages"] == counts)
            & (counts <= ROWS)
            & (sizes >= 0)
            & (sizes % counts == 0)
        )
        if extras:
            extended = (heads["flags"] & EXTENDED != 0) & self._plain
            if extended.any():
                self._plain &= ~extended | self._is_request_only(piece.data)
        self._sizes = sizes // counts if bodies else np.zeros_like(sizes)

    def _is_request_only(self, data: bytes) -> Any:
        """Return for each record whether its extension says nothing about messages."""
        known = np.frombuffer(data, np.uint8)
        ends = np.clip(self._body_starts, REQUEST_BYTES, len(data))
        sizes = np.frombuffer(np.stack([known[ends - 4 + i] for i in range(4)], axis=1), "<u4")
        return (sizes == REQUEST_BYTES) & (known[ends - REQUEST_BYTES] == REQUEST)

    def stretches(self) -> Iterator[tuple[int, int]]:
        """Return ranges of entries in which many plain records follow each other."""
        edges = np.flatnonzero(np.diff(self._plain, prepend=False, append=False))
        for first, stop in edges.reshape(-1, 2).tolist():
            if stop - first >= STRETCH_MIN:
                yield self._low + first, self._low + stop

    def sound(self, first: int, stop: int, seed: int) -> tuple[Column, list[bytes | memoryview]]:
        """Return times, sizes and bodies of the entries from `first` on, up to the first one that
        is not sound.

        They end before the first entry whose checksums do not match.
        """
        part = slice(first - self._low, stop - self._low)
        data, heads = self._data, self._heads[part]
        body_starts = self._body_starts[part].tolist()
        fronts = map(slice, (self._starts[part] + PREFIX_BYTES).tolist(), body_starts)
        crcs = list(map(crc32, map(data.__getitem__, fronts), repeat(seed)))
        good = _equal(crcs, heads["crc"])
        bodies: list[bytes | memoryview] = []
        if self._bodies:
            cuts = map(slice, body_starts, self._ends[part].tolist())
            # A view of a long body saves a copy. Of a short one, the view costs more than the copy.
            long = (self._ends[part] - self._body_starts[part]).mean() > VIEW_BYTES
            bodies = list(map((memoryview(data) if long else data).__getitem__, cuts))
            good = min(good, _equal(list(map(crc32, bodies)), heads["bodies_crc"]))
        lines = np.stack((heads["time_us"][:good], self._sizes[part][:good]))
        return lines, bodies[:good]


def _equal(found: list[int], wanted: Column) -> int:
    """Return how many items at the start of both are equal."""
    wrong = np.flatnonzero(np.array(found, np.uint32) != wanted)
    return int(wrong[0]) if len(wrong) else len(found)
