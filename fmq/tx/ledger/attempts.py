"""How often each message of a queue was tried by a group, as ranges that are alike.

Only messages that were tried and are not acked are kept. So the number of ranges, in memory and in
checkpoints, is bounded by the number of messages that a group has in hand or waits to try again.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from typing import NamedTuple

ATTEMPTS_MAX = (1 << 32) - 1


class Attempts(NamedTuple):
    """The attempts of each message of a range, up to, not including, the offset `end`."""

    end: int
    # How often each message of the range was tried.
    tries: int
    # When the messages may be tried again, if they were given back until a time; else 0.
    due_us: int


# The generated `Attempts.__new__` is a Python function; the tuple's own is faster.
new_tuple = tuple.__new__


class AttemptMap:
    """The attempts of one group in one queue: disjoint ranges, joined where they are alike.

    Their order is kept in a list. Almost every range is added at its end and removed at its front,
    and up to a hundred thousand ranges a list is faster than a tree written in Python.
    """

    __slots__ = ("_by_first", "_firsts")

    def __init__(self) -> None:
        self._by_first: dict[int, Attempts] = {}  # the ranges by their first offsets
        self._firsts: list[int] = []  # the keys of `_by_first`, sorted

    def __bool__(self) -> bool:
        return bool(self._firsts)

    def put(self, first: int, end: int, count: int, due_us: int) -> None:
        """Set the attempts of a range, and replace those noted before."""
        ranges, firsts = self._by_first, self._firsts
        if firsts:
            if ranges[firsts[-1]].end > first:
                self.drop(first, end)
            i = bisect_left(firsts, first)
            if i and ranges[firsts[i - 1]] == (first, count, due_us):
                first = firsts[i - 1]
            following = ranges.get(end)
            if following is not None and following[1:] == (count, due_us):
                self._remove(end)
                end = following.end
        self._set(first, new_tuple(Attempts, (end, count, due_us)))

    def _set(self, first: int, attempts: Attempts) -> None:
        firsts = self._firsts
        if not firsts or first > firsts[-1]:
            firsts.append(first)
        elif first not in self._by_first:
            insort(firsts, first)
        self._by_first[first] = attempts

    def _remove(self, first: int) -> None:
        del self._by_first[first]
        del self._firsts[bisect_left(self._firsts, first)]

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
        exact = self._by_first.get(first)
        if exact is not None and exact.end == end:
            self._remove(first)
            return
        for low, known in [*self._overlapping(first, end)]:
            self._remove(low)
            if low < first:
                self._set(low, known._replace(end=first))
            if end < known.end:
                self._set(end, known)

    def drop_below(self, first: int) -> None:
        """Forget the attempts of the messages below the offset `first`."""
        self.drop(0, first)

    def clear(self) -> None:
        """Forget all attempts."""
        self._by_first.clear()
        self._firsts.clear()

    def within(self, first: int, end: int) -> Iterator[tuple[int, Attempts]]:
        """Yield the ranges between `first` and `end` that have attempts, each with its first
        offset.
        """
        for low, known in self._overlapping(first, end):
            yield max(low, first), known._replace(end=min(known.end, end))

    def _overlapping(self, first: int, end: int) -> Iterator[tuple[int, Attempts]]:
        firsts = self._firsts
        i = max(bisect_right(firsts, first) - 1, 0)
        for low in firsts[i : bisect_left(firsts, end)]:
            known = self._by_first[low]
            if known.end > first:
                yield low, known

    def _items(self) -> Iterator[tuple[int, Attempts]]:
        return ((first, self._by_first[first]) for first in self._firsts)

    def all(self) -> list[list[int]]:
        """Return all ranges for JSON, each as first, end, count and due_us."""
        return [[first, *known] for first, known in self._items()]

    def beyond(self, first: int) -> list[list[int]]:
        """Return all ranges as `drop_below(first)` would leave them."""
        found = [[max(low, first), *known] for low, known in self._items()]
        return [each for each in found if each[0] < each[1]]

    def _check(self) -> None:
        assert self._firsts == sorted(self._by_first)
        last = -1
        for first, known in self._items():
            assert last <= first < known.end, (last, first, known)
            last = known.end
