"""The dead letters of each group: in which topic they are, and which of them are still there.

A message that a group has rejected lies in an internal topic, which no caller can name. If it is
replayed, it goes to another internal topic, which the group reads beside the topic that the message
came from. Retention never drops dead letters. It carries them forward, and they get new offsets.
Each keeps its number, so `Moved` notes where the letters with these numbers are now.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from sortedcontainers import SortedDict

from fmq.arguments.names import check_name, check_text
from fmq.store.bytes.internal import dead_topic, is_internal
from fmq.tx.ledger.acks import AckSet
from fmq.tx.ledger.queues import Queue

PURGED, REPLAYED, CARRIED = 0, 1, 2
"""What became of dead letters that are no more where they were: the value of an END_DEAD."""


def check_taken(topic: str) -> str:
    """Return the topic of a delivery if its name is right. Raises TypeError or BadName."""
    return topic if is_internal(check_text("topic", topic)) else check_name("topic", topic)


class Moved:
    """Where dead letters are whose numbers differ from their offsets."""

    __slots__ = ("_by_number", "_by_offset")

    def __init__(self, runs: Iterable[Iterable[int]] = ()) -> None:
        self._by_offset: SortedDict[int, tuple[int, int]] = SortedDict()  # offset -> number, count
        self._by_number: SortedDict[int, tuple[int, int]] = SortedDict()  # number -> offset, count
        for offset, number, count in runs:
            self.add(offset, number, count)

    def add(self, offset: int, number: int, count: int) -> None:
        """Note that the `count` letters from `number` on are at `offset` and after it."""
        self._by_offset[offset] = number, count
        self._by_number[number] = offset, count

    def take(self, first: int, end: int) -> None:
        """Forget the moves to the offsets from `first` up to, not including, `end`."""
        for start in [*self._by_offset.irange(maximum=end - 1)]:
            number, count = self._by_offset[start]
            if start + count <= first:
                continue
            del self._by_offset[start], self._by_number[number]
            if start < first:
                self.add(start, number, first - start)
            if end < start + count:
                self.add(end, number + end - start, start + count - end)

    def number_at(self, offset: int) -> int:
        """Return the number of the letter at `offset`."""
        return _find(self._by_offset, offset, offset)

    def offset_of(self, number: int) -> int | None:
        """Return the offset of the letter with this number, even if the letter has ended. Return
        None if the number has no place any more.
        """
        offset = _find(self._by_number, number, -1)
        if offset >= 0:
            return offset
        return number if self.number_at(number) == number else None

    def pieces(self, first: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Yield the offsets from `first` up to `end` in runs: number, offset and count of each."""
        while first < end:
            i = self._by_offset.bisect_right(first)
            stop = min(end, self._by_offset.peekitem(i)[0]) if i < len(self._by_offset) else end
            if i and first < (last := sum(_ends(self._by_offset.peekitem(i - 1)))):
                stop = min(stop, last)
            yield self.number_at(first), first, stop - first
            first = stop

    def runs(self) -> list[list[int]]:
        """Return offset, number and count of each run of letters that was carried forward."""
        return [[offset, *what] for offset, what in self._by_offset.items()]


def _ends(run: tuple[int, tuple[int, int]]) -> tuple[int, int]:
    start, (_, count) = run
    return start, count


def _find(runs: SortedDict[int, tuple[int, int]], key: int, otherwise: int) -> int:
    i = runs.bisect_right(key) - 1
    if i >= 0:
        start, (there, count) = runs.peekitem(i)
        if key < start + count:
            return int(there + key - start)
    return otherwise


class DeadLetterState:
    """The dead letters of one group, as far as the journal says."""

    __slots__ = ("again", "carried_since", "closed", "group", "moved", "topic")

    def __init__(self, group: str) -> None:
        self.group = group
        self.topic = dead_topic(group)
        # The offsets of letters that were purged, replayed or carried forward.
        self.closed = AckSet()
        self.moved = Moved()
        # Letters that retention has carried forward since the engine was opened.
        self.carried_since = 0
        self.again: set[str] = set()  # the topics whose letters were replayed

    def open_ranges(self, queue: Queue | None) -> Iterator[tuple[int, int]]:
        """Yield the ranges of offsets with letters that have not ended. `queue` is that of the dead
        topic.
        """
        return iter(()) if queue is None else self.closed.gaps(queue.first, queue.next)

    def count(self, queue: Queue | None) -> int:
        """Return how many dead letters the group has."""
        return sum(end - first for first, end in self.open_ranges(queue))

    def runs(self, queue: Queue | None) -> list[tuple[int, int, int]]:
        """Return number, offset and count of each run of letters, sorted by number."""
        ranges = self.open_ranges(queue)
        return sorted(piece for first, end in ranges for piece in self.moved.pieces(first, end))

    def is_open(self, queue: Queue | None, offset: int) -> bool:
        """Return whether the letter at `offset` has not ended."""
        return (
            queue is not None and queue.first <= offset < queue.next and offset not in self.closed
        )

    def are_open(self, queue: Queue, ranges: Iterable[tuple[int, int]]) -> bool:
        """Return whether no letter in `ranges` has ended."""
        return all(
            end <= queue.end and self.closed.count_gaps(max(first, queue.first), end) == end - first
            for first, end in ranges
        )

    def carried(self, first: int) -> list[Any]:
        """Return the dead letters for JSON, as they will be when their queue begins at `first`."""
        return [self.group, *self.closed.beyond(first), self.moved.runs(), sorted(self.again)]

    def carry(self, floor: int, ranges: Iterable[tuple[int, int]], moved: Any) -> None:
        """Take over what `carried` returned."""
        self.closed.add(0, floor)
        for first, end in ranges:
            self.closed.add(first, end)
        self.moved = Moved(moved)
