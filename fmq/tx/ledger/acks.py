"""The acks of a group in one queue: all offsets below a floor, and ranges above it.

The floor is never below the first message that is stored. So the number of ranges, in memory and
in checkpoints, is bounded by the number of messages that are stored.
"""

from __future__ import annotations

from collections.abc import Iterator

from sortedcontainers import SortedDict


class AckSet:
    """A set of offsets of one queue, kept as a floor and disjoint ranges."""

    __slots__ = ("_ranges", "floor", "is_empty")

    def __init__(self, floor: int = 0) -> None:
        """Make an empty set for a queue that begins at `floor`."""
        self.floor = floor
        self.is_empty = True
        """Whether the group has never acked anything. Then retention does not wait for it."""
        # The first offset of each range -> its end.
        self._ranges: SortedDict[int, int] = SortedDict()

    def add(self, first: int, end: int) -> None:
        """Add the offsets from `first` up to, not including, `end`.

        Some of them may be in the set already, or below the first message.
        """
        if first < end:
            self.is_empty = False
            if first > self.floor:
                self._insert(first, end)
            elif end > self.floor:
                self.floor = end
        ranges = self._ranges
        while ranges and ranges.peekitem(0)[0] <= self.floor:
            self.floor = max(self.floor, ranges.popitem(0)[1])

    def drop_below(self, first: int) -> int:
        """Raise the floor to `first`, because retention has dropped the messages below it.

        Return how many of the dropped messages had not been acked.
        """
        lost = self.count_gaps(self.floor, first)
        if first > self.floor:
            self.floor = first
            # The empty range adds no offset, but `add` joins the ranges that the floor has reached.
            self.add(first, first)
        return lost

    def move_to(self, floor: int) -> None:
        """Set the floor to `floor` and forget all ranges above it."""
        self.floor = floor
        self.is_empty = False
        self._ranges.clear()

    def _insert(self, first: int, end: int) -> None:
        ranges = self._ranges
        i = ranges.bisect_right(first) - 1
        if i >= 0 and ranges.peekitem(i)[1] >= first:
            first, before = ranges.popitem(i)
            end = max(end, before)
        i = ranges.bisect_left(first)
        while i < len(ranges) and ranges.peekitem(i)[0] <= end:
            end = max(end, ranges.popitem(i)[1])
        ranges[first] = end

    def __contains__(self, offset: int) -> bool:
        if offset < self.floor:
            return True
        i = self._ranges.bisect_right(offset) - 1
        return i >= 0 and bool(self._ranges.peekitem(i)[1] > offset)

    def gaps(self, first: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the ranges between `first` and `end` that are not acked."""
        at = max(first, self.floor)
        ranges = self._ranges
        if not ranges:
            if at < end:
                yield at, end
            return
        i = ranges.bisect_right(at) - 1
        for start in ranges.irange(minimum=ranges.peekitem(max(i, 0))[0], maximum=end - 1):
            stop = ranges[start]
            if start > at:
                yield at, start
            at = max(at, stop)
        if at < end:
            yield at, end

    def gap(self, first: int, end: int) -> tuple[int, int] | None:
        """Return the first range between `first` and `end` that is not acked."""
        if self._ranges:
            return next(self.gaps(first, end), None)
        first = max(first, self.floor)
        return (first, end) if first < end else None

    def count_gaps(self, first: int, end: int) -> int:
        """Return how many offsets from `first` up to `end` are not acked."""
        return sum(high - low for low, high in self.gaps(first, end))

    def count_beyond(self) -> int:
        """Return how many offsets above the floor are acked."""
        return sum(end - first for first, end in self._ranges.items())

    def beyond(self, first: int) -> tuple[int, list[list[int]]]:
        """Return the floor and the ranges as `drop_below(first)` would leave them."""
        floor, ranges = max(self.floor, first), []
        for start, end in self._ranges.items():
            if start <= floor:
                floor = max(floor, end)
            else:
                ranges.append([start, end])
        return floor, ranges

    def _check(self) -> None:
        last = self.floor
        for first, end in self._ranges.items():
            assert last < first < end, (self.floor, list(self._ranges.items()))
            last = end
