"""How often each message of a queue was tried by a group, as ranges that are alike.

Only messages that were tried and are not acked are kept. So the number of ranges, in memory and in
checkpoints, is bounded by the number of messages that a group has in hand or waits to try again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from sortedcontainers import SortedDict

ATTEMPTS_MAX = (1 << 32) - 1


class Attempts(NamedTuple):
    """The attempts of each message of a range, up to, not including, the offset `end`."""

    end: int
    # How often each message of the range was tried.
    tries: int
    # When the messages may be tried again, if they were given back until a time; else 0.
    due_us: int


class AttemptMap:
    """The attempts of one group in one queue: disjoint ranges, joined where they are alike."""

    __slots__ = ("_ranges",)

    def __init__(self) -> None:
        self._ranges: SortedDict[int, Attempts] = SortedDict()  # by the first offset of a range

    def __bool__(self) -> bool:
        return bool(self._ranges)

    def put(self, first: int, end: int, count: int, due_us: int) -> None:
        """Set the attempts of a range, and replace those noted before."""
        ranges = self._ranges
        if ranges:
            if ranges.peekitem(-1)[1].end > first:
                self.drop(first, end)
            i = ranges.bisect_left(first)
            if i and ranges.peekitem(i - 1)[1] == (first, count, due_us):
                first = ranges.peekitem(i - 1)[0]
            following = ranges.get(end)
            if following is not None and following[1:] == (count, due_us):
                del ranges[end]
                end = following.end
        ranges[first] = Attempts(end, count, due_us)

    def fill(self, first: int, end: int, count: int, due_us: int) -> None:
        """Set the attempts of those messages of a range that have none noted."""
        at = first
        for low, known in [*self.within(first, end)]:
            if at < low:
                self.put(at, low, count, due_us)
            at = known.end
        if at < end:
            self.put(at, end, count, due_us)

    def drop(self, first: int, end: int) -> None:
        """Forget the attempts of a range."""
        ranges = self._ranges
        if first >= end or not ranges:
            return
        exact = ranges.get(first)
        if exact is not None and exact.end == end:
            del ranges[first]
            return
        for low, known in [*self._overlapping(first, end)]:
            del ranges[low]
            if low < first:
                ranges[low] = known._replace(end=first)
            if end < known.end:
                ranges[end] = known

    def drop_below(self, first: int) -> None:
        """Forget the attempts of the messages below the offset `first`."""
        if self._ranges:
            self.drop(0, first)

    def clear(self) -> None:
        """Forget all attempts."""
        self._ranges.clear()

    def within(self, first: int, end: int) -> Iterator[tuple[int, Attempts]]:
        """Yield the ranges between `first` and `end` that have attempts, each with its first
        offset.
        """
        for low, known in self._overlapping(first, end):
            yield max(low, first), known._replace(end=min(known.end, end))

    def _overlapping(self, first: int, end: int) -> Iterator[tuple[int, Attempts]]:
        ranges = self._ranges
        i = max(ranges.bisect_right(first) - 1, 0)
        while i < len(ranges):
            low, known = ranges.peekitem(i)
            if low >= end:
                return
            if known.end > first:
                yield low, known
            i += 1

    def all(self) -> list[list[int]]:
        """Return all ranges for JSON, each as first, end, count and due_us."""
        return [[first, *known] for first, known in self._ranges.items()]

    def beyond(self, first: int) -> list[list[int]]:
        """Return all ranges as `drop_below(first)` would leave them."""
        found = [[max(low, first), *known] for low, known in self._ranges.items()]
        return [each for each in found if each[0] < each[1]]

    def _check(self) -> None:
        last = -1
        for first, known in self._ranges.items():
            assert last <= first < known.end, (last, first, known)
            last = known.end
