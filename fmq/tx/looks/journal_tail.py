"""What the next appends of the journal have published, for a caller that copies messages elsewhere.

What one append publishes becomes visible at one instant: a transaction, or a call of `send_many`. A
copy that is made queue by queue may have only a part of it. Here a part ends between two appends.
The indexes say which messages lie there, so no record of another topic is read.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Collection
from heapq import merge
from itertools import accumulate

from fmq.errors import PositionGone
from fmq.store.bytes.internal import is_internal
from fmq.store.index.catalog import Catalog
from fmq.store.index.index import NOWHERE, Lane, QueueKey, SegmentIndex
from fmq.store.reading.reader import Reader
from fmq.tx.looks.messages import Messages

QueueRange = tuple[str, int, int, int]
"""Topic, queue, and the offsets of messages: the first one, and the one after the last."""
Lanes = list[tuple[QueueKey, Lane]]


class JournalTail:
    """Finds what was published from a position on. Safe for threads."""

    def __init__(self, messages: Messages, catalog: Catalog, reader: Reader) -> None:
        self._messages = messages
        self._lock, self._ledger = messages.lock, messages.ledger
        self._catalog = catalog
        self._reader = reader

    def look(
        self, position: int, topics: Collection[str] | None, limit: int
    ) -> tuple[int, list[QueueRange]]:
        """Return the position after whole appends from `position` on, and what they have published
        to `topics`, or to all topics: `limit` messages, and the rest of the append that holds
        the last one.

        Raises PositionGone if retention has dropped an append behind `position`.
        """
        # Wait until all changes of topics are durable: messages that a topic does not keep any more
        # are left out.
        self._messages.catch_up(self._ledger.changed_at)
        with self._lock:
            visible = self._ledger.shown_to
            in_memory = {each.base: each for each in (*self._ledger.sealed, self._ledger.index)}
            bases = sorted({*self._catalog.bases(), *in_memory})
        found: list[QueueRange] = []
        base = bases[0]
        try:
            if 0 < position < base and position < self._reader.header(base).previous_end:
                raise PositionGone(position, base)
            for base, behind in zip(bases, [*bases[1:], visible], strict=True):
                if behind <= position or visible <= base:
                    continue
                index = in_memory.get(base) or self._index(base, topics)
                lanes = [] if index is None else self._lanes(index, topics)
                low, high = max(position - base, 0), visible - base
                segment_end = high if index is None else min(high, index.end - base)
                cut = self._cut(base, lanes, low, segment_end, limit)
                part = self._ranges(lanes, low, cut or high)
                found += part
                if cut:
                    return base + cut, found
                # A joint decision may go on in the next segment. Then it is taken whole.
                limit = max(limit - sum(end - first for _, _, first, end in part), 1)
        except FileNotFoundError:
            self._catalog.check_dropped(base)
            return self.look(position, topics, limit)  # retention has dropped the segment meanwhile
        return max(position, visible), found

    def _index(self, base: int, topics: Collection[str] | None) -> SegmentIndex | None:
        """Return the index of a sealed segment; None if it has nothing of `topics`."""
        if topics is None or any(key[0] in topics for key in self._catalog.summary(base)):
            return self._catalog.index(base)
        return None

    def _lanes(self, index: SegmentIndex, topics: Collection[str] | None) -> Lanes:
        """Return the lanes of `topics` in a segment. Leave out messages of topics that were
        deleted.
        """
        with self._lock:
            deleted, is_live = self._ledger.deleted, index is self._ledger.index
            return [
                (key, lane)
                for key, lane in index.lanes.items()
                if (topics is None or key[0] in topics)
                and not is_internal(key[0])
                and (is_live or deleted.get(key[0], -1) < index.end)
            ]

    def _cut(self, base: int, lanes: Lanes, low: int, high: int, limit: int) -> int:
        """Return the place where the append ends that publishes message number `limit`, counted
        from the place `low` on. Return 0 if there are fewer up to `high`.
        """
        parts = []
        with self._lock:
            for _, lane in lanes:
                records = _places(lane)
                i = bisect_left(records, low)
                part = slice(i, min(bisect_left(records, high, i), i + limit))
                parts.append(zip(records[part], lane.counts[part], strict=True))
        for place, count in merge(*parts):
            limit -= count
            if limit <= 0:
                return self._reader.append_end(base, place, high)
        return 0

    def _ranges(self, lanes: Lanes, low: int, high: int) -> list[QueueRange]:
        """Return the ranges that are published from the place `low` up to `high`, as far as they
        are kept.
        """
        found = []
        with self._lock:
            for (topic, number), lane in lanes:
                queue, records = self._ledger.queue(topic, number), _places(lane)
                first, end = (_offset_of(lane, bisect_left(records, at)) for at in (low, high))
                first = end if queue is None else max(first, queue.first)
                if first < end:
                    found.append((topic, number, first, end))
        return found


def _places(lane: Lane) -> array[int]:
    """Return the place of each record of `lane`. An entry without a place gets that of the entry
    before it, so that the result is sorted.
    """
    records = lane.records
    # An entry for missing messages has made a second column, see `Lane.part_bodies`.
    if lane.bodies is records or NOWHERE not in records:
        return records
    return array("I", accumulate(records, max))


def _offset_of(lane: Lane, i: int) -> int:
    """Return the first offset of entry `i`. After the last entry, return that of the next run."""
    return lane.first + lane.starts[i] if i < len(lane.starts) else lane.next
