"""Finds where appends begin in a part of a segment, by its index and by reading a few heads.

An index knows where messages are published and transactions are decided, and not where the
appends begin that do so. But a record says whether it is the first of one, and with a decision
one ends; so a place close before the wanted one is found, and only from there on is read.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

import numpy as np

from fmq.store.bytes.record import FIRST, LAST, aligned
from fmq.store.index.index import SegmentIndex
from fmq.store.journal.files import read_front
from fmq.table.entries import Column
from fmq.table.split import OpenSplit

LOOK_BACK = 16  # records to look back; most appends have fewer


class Boundaries:
    """The boundaries between appends in an open split."""

    def __init__(self, source: OpenSplit, index: SegmentIndex) -> None:
        self._source = source
        self._base = source.split.base
        self._low = source.split.start - self._base
        self._high = source.split.end - self._base
        places, counts = _runs(index)
        first, last = np.searchsorted(places, (self._low, self._high))
        self._places = places[first:last]
        self._messages = np.cumsum(counts[first:last])
        self._decisions = index.outcome_places

    def messages_before(self, position: int) -> int:
        """Return how many messages are published before `position`."""
        number = int(np.searchsorted(self._places, position - self._base))
        return int(self._messages[number - 1]) if number else 0

    def holding(self, messages: int) -> int:
        """Return the position of the record that publishes the message with number `messages`,
        counted from 0. After the last message, return the end of the split.
        """
        number = int(np.searchsorted(self._messages, messages, side="right"))
        return self._base + int(self._places[number] if number < len(self._places) else self._high)

    def before(self, position: int) -> int:
        """Return the last boundary up to `position`: the start of an append, or the end of the
        split.
        """
        near = max(self._message_near(position), self._decision_near(position))
        for begin, end in self._appends(near):
            if end > position:
                return begin
        return self._base + self._high

    def after(self, boundary: int) -> int:
        """Return the end of the append that begins at `boundary`."""
        return next(end for _, end in self._appends(boundary))

    def _appends(self, start: int) -> Iterator[tuple[int, int]]:
        """Yield the start and the end of each append from `start` on. Only the heads of records are
        read.
        """
        begin = place = start - self._base
        while place < self._high:
            size, flags = self._front(place)
            if flags & FIRST:
                begin = place
            place += aligned(size)
            if flags & LAST:
                yield self._base + begin, self._base + place

    def _message_near(self, position: int) -> int:
        """Return the position of the last message up to `position` that is the first record of its
        append. If none is near, return the start of the split.
        """
        stop = int(np.searchsorted(self._places, position - self._base, side="right"))
        for place in self._places[max(0, stop - LOOK_BACK) : stop][::-1].tolist():
            _, flags = self._front(place)
            if flags & FIRST:
                return self._base + int(place)
        return self._base + self._low

    def _decision_near(self, position: int) -> int:
        """Return the end of the last decision up to `position`, because a decision ends its append.
        If none is near, return the start of the split.
        """
        number = bisect_right(self._decisions, position - self._base)
        for place in self._decisions[max(0, number - 2) : number][::-1]:
            if place >= self._low:
                size, _ = self._front(place)
                if place + aligned(size) <= min(position - self._base, self._high):
                    return self._base + place + aligned(size)
        return self._base + self._low

    def _front(self, place: int) -> tuple[int, int]:
        return read_front(self._source.file, self._base, place)


def _runs(index: SegmentIndex) -> tuple[Column, Column]:
    """Return the places where messages are published, sorted, and the number of messages in
    each.
    """
    parts = [
        np.stack([np.frombuffer(column, np.uint32) for column in (lane.records, lane.counts)])
        for lane in index.lanes.values()
    ]
    found = np.concatenate([*parts, np.empty((2, 0), np.uint32)], axis=1).astype(np.int64)
    places, counts = found[:, np.argsort(found[0], kind="stable")]
    return places, counts
