"""Finding the messages of a topic that have a key, the newest first.

For a sealed segment, its key marks say which runs may have the key. For records written since, the
heads are read once, and their marks are kept in memory. Bodies are read only of the messages that
are returned.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from fmq.arguments.names import check_count, check_text
from fmq.errors import OffsetGone
from fmq.store.bytes.content import text_bytes
from fmq.store.index.catalog import Catalog
from fmq.store.index.index import Lane, QueueKey, SegmentIndex
from fmq.store.reading.key_marks import KeyMarks, hash_of
from fmq.store.reading.reader import Entries, Reader, entries_of
from fmq.tx.looks.messages import Messages

KeyPlace = tuple[int, int]
"""The queue and the offset of a message."""


class _NewMarks:
    """Key marks that were made from heads, for one lane of an index in memory."""

    __slots__ = ("lane", "numbers", "seen")

    def __init__(self, lane: Lane) -> None:
        self.lane = lane
        self.seen = 0  # how many entries of the lane have marks
        self.numbers: dict[int, list[int]] = {}  # hash of a key -> numbers of entries


class Finder:
    """Finds messages by key. Safe for threads."""

    def __init__(
        self, messages: Messages, catalog: Catalog, reader: Reader, marks: KeyMarks
    ) -> None:
        self._messages = messages
        self._ledger = messages.ledger
        self._catalog = catalog
        self._reader = reader
        self._marks = marks
        self._new: dict[tuple[int, QueueKey], _NewMarks] = {}

    def places(self, topic: str, key: str, limit: int) -> list[KeyPlace]:
        """Return the places of up to `limit` messages with `key`, the newest first.

        Raises the errors of reading records.
        """
        hash, found = hash_of(key), list[KeyPlace]()
        for runs in self._segments(topic, hash):
            for queue, run in sorted(runs, key=_place_of, reverse=True):
                try:
                    found += self._in_run(queue, run, key, topic)
                except OffsetGone:
                    return found[:limit]  # retention has dropped this segment and the older ones
                except FileNotFoundError:
                    self._catalog.check_dropped(run.base)
                    return found[:limit]
                if len(found) >= limit:
                    return found[:limit]
        return found

    def _in_run(self, queue: int, run: Entries, key: str, topic: str) -> list[KeyPlace]:
        """Return the places of the messages of a run that have the key, the newest first."""
        keep_to = self._ledger.shown_to - run.base
        (carried,) = self._reader.carried(run, run.first, run.counts[0], keep_to)
        with self._messages.lock:
            known = self._ledger.queue(topic, queue)
            first = 0 if known is None else known.first
        offsets = [run.first + i for i, each in enumerate(carried.keys()) if each == key]
        return [(queue, offset) for offset in reversed(offsets) if offset >= first]

    def _segments(self, topic: str, hash: int) -> Iterator[list[tuple[int, Entries]]]:
        """Yield for each segment, the newest first, the runs that may have a key with `hash`."""
        ledger = self._ledger
        with self._messages.lock:
            # Records before this position belong to a deleted topic of the same name.
            since = ledger.deleted.get(topic, -1)
            new = [ledger.index, *reversed(ledger.sealed)]
            bases = self._catalog.bases()
            in_memory = {index.base for index in new}
            for each in [each for each in self._new if each[0] not in in_memory]:
                del self._new[each]
        for index in new:
            if index.end <= since and index is not ledger.index:
                return
            yield [*self._in_memory(index, topic, hash)]
        ends = [*bases, new[-1].base][1:]
        for base, end in zip(reversed(bases), reversed(ends), strict=True):
            if end <= since:
                return
            try:
                keys = [key for key in self._catalog.summary(base) if key[0] == topic]
                yield [*self._sealed(base, keys, hash)]
            except FileNotFoundError:
                self._catalog.check_dropped(base)
                return

    def _in_memory(
        self, index: SegmentIndex, topic: str, hash: int
    ) -> Iterator[tuple[int, Entries]]:
        with self._messages.lock:
            keys = [key for key in index.lanes if key[0] == topic]
        for key in keys:
            marks = self._look_on(index, key)
            if marks is not None:
                for number in marks.numbers.get(hash, ()):
                    with self._messages.lock:
                        run = _run(index.base, marks.lane, number)
                    yield key[1], run

    def _look_on(self, index: SegmentIndex, key: QueueKey) -> _NewMarks | None:
        """Return the marks of a lane, after reading the heads that are new in it."""
        with self._messages.lock:
            lane = index.lanes.get(key)
            if lane is None:
                return None
            marks = self._new.get((index.base, key))
            if marks is None or marks.lane is not lane:
                marks = _NewMarks(lane)
            queue = self._ledger.queue(*key)
            shown = 0 if queue is None else min(queue.next, lane.next)
            seen, count = marks.seen, bisect_left(lane.starts, shown - lane.first)
            if seen < count:
                first = lane.first + lane.starts[seen]
                entries = entries_of(index.base, lane, first, shown - first)
            keep_to = self._ledger.shown_to - index.base
        if seen >= count:
            return marks
        # Threads that look at the same time each make such an object. One of them is kept.
        grown = _NewMarks(lane)
        grown.numbers = {hash: [*numbers] for hash, numbers in marks.numbers.items()}
        messages = sum(entries.counts)
        runs = self._reader.carried(entries, entries.first, messages, keep_to)
        for number, run in enumerate(runs, seen):
            for hash in run.key_hashes():
                grown.numbers.setdefault(hash, []).append(number)
        grown.seen = count
        with self._messages.lock:
            self._new[index.base, key] = grown
        return grown

    def _sealed(self, base: int, keys: list[QueueKey], hash: int) -> Iterator[tuple[int, Entries]]:
        if not keys:
            return
        marks, index = self._marks.of(base, self._catalog.chain_of(base)), None
        for key in keys:
            lane_marks = marks.get(key)
            numbers = [] if lane_marks is None else lane_marks.find(hash)
            if numbers:
                index = index or self._catalog.index(base)
                for number in numbers:
                    yield key[1], _run(base, index.lanes[key], number)


def check_find(topic: str, key: str, limit: int) -> tuple[str, str, int]:
    """Return the arguments of `find` if they are right. Raises TypeError, BadName or BadOption."""
    text_bytes("key", check_text("key", key))  # raises BadName for a key that cannot be stored
    return check_text("topic", topic), key, check_count("limit", limit)


def _run(base: int, lane: Lane, number: int) -> Entries:
    part = slice(number, number + 1)
    first = lane.first + lane.starts[number]
    return Entries(base, first, lane.counts[part], lane.records[part], lane.bodies[part])


def _place_of(run: tuple[int, Entries]) -> int:
    return run[1].records[0]
