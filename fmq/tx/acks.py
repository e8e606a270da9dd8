"""What a group is done with in one queue: everything below a floor, and ranges above it.

What retention has dropped nobody can be done with any more: the floor is never below the first
message that there is. So the ranges, and what is carried of them, are bounded by what is stored.
"""

from __future__ import annotations

from collections.abc import Iterator

from sortedcontainers import SortedDict


class AckSet:
    """A set of offsets of one queue, kept as a floor and disjoint ranges."""

    __slots__ = ("_ranges", "floor", "is_empty")

    def __init__(self, floor: int = 0) -> None:
        """Of a queue that begins at `floor`."""
        self.floor = floor
        self.is_empty = True
        """Whether the group has acked nothing, so that it counts nowhere. What was dropped is no
        ack of its, and what it acked stays one when it is dropped."""
        self._ranges: SortedDict[int, int] = SortedDict()  # first -> end

    def add(self, first: int, end: int) -> None:
        """`first` up to, not including, `end` are done; any part of it may have been before, or be
        dropped.
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

    def drop_below(self, first: int) -> None:
        """The queue begins at `first` now."""
        if first > self.floor:
            self.floor = first
            self.add(first, first)  # no ack, but ranges that the floor has come to join it

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
        """The ranges from `first` up to `end` that are not done."""
        at = max(first, self.floor)
        for start, stop in self._ranges.items():
            if start >= end:
                break
            if start > at:
                yield at, start
            at = max(at, stop)
        if at < end:
            yield at, end

    def gap(self, first: int, end: int) -> tuple[int, int] | None:
        """The first of them."""
        if self._ranges:
            return next(self.gaps(first, end), None)
        first = max(first, self.floor)
        return (first, end) if first < end else None

    def count_beyond(self) -> int:
        """How many above the floor are done."""
        return sum(end - first for first, end in self._ranges.items())

    def beyond(self, first: int) -> tuple[int, list[list[int]]]:
        """The floor and the ranges above it, as `drop_below(first)` would leave them."""
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
