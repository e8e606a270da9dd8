"""The holds of one group in one queue: disjoint ranges of offsets, found by an offset inside.

Guarded by the engine's lock.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from typing import Protocol

from fmq.basics.process import Process
from fmq.consume.claims.backoff import Retry


class Trier(Protocol):
    """A member of a group, as far as the owner of a hold knows it."""

    name: str
    process: Process | None

    @property
    def retry(self) -> Retry: ...


class MemberOwner:
    """The owner of holds that a member of a group has. A Claim is one."""

    __slots__ = ("member",)

    def __init__(self, member: Trier) -> None:
        self.member = member


class Hold:
    """A range of offsets that one owner holds until `deadline`.

    The owner is the Claim of a consumer. Or it is an object that stands for a transaction, which
    has no deadline, or one of those that holds.py names.
    """

    __slots__ = ("count", "deadline", "end", "first", "owner")

    def __init__(
        self, first: int, end: int, owner: object, deadline: float, count: int = 0
    ) -> None:
        self.first = first
        self.end = end
        self.owner = owner
        self.deadline = deadline
        self.count = count  # how often each message of the range was tried, this time included


class HoldMap:
    """Disjoint holds. Each is found by its first offset, or by any offset inside of it.

    The order is kept in a list. Almost every hold is added at the end of the list and removed near
    one of its ends. Up to a hundred thousand holds, a list is then faster than a tree written in
    Python.
    """

    __slots__ = ("_firsts", "by_first")

    def __init__(self) -> None:
        self.by_first: dict[int, Hold] = {}
        self._firsts: list[int] = []  # the keys of `by_first`, sorted

    def has_unleased(self) -> bool:
        """Return whether a hold has no deadline, as that of a transaction."""
        return any(hold.deadline == math.inf for hold in self.by_first.values())

    def add(self, hold: Hold) -> None:
        first, firsts = hold.first, self._firsts
        is_new = first not in self.by_first
        self.by_first[first] = hold
        if not firsts or first > firsts[-1]:
            firsts.append(first)
        elif is_new:
            insort(firsts, first)

    def remove(self, first: int) -> None:
        """Remove the hold that begins at `first`."""
        firsts = self._firsts
        i = bisect_left(firsts, first)
        if i < len(firsts) and firsts[i] == first:
            del firsts[i]
        del self.by_first[first]

    def find(self, offset: int) -> Hold | None:
        """Return the hold that covers `offset`."""
        exact = self.by_first.get(offset)
        if exact is not None:
            return exact
        i = bisect_right(self._firsts, offset) - 1
        if i < 0:
            return None
        hold = self.by_first[self._firsts[i]]
        return hold if hold.end > offset else None

    def is_free_from(self, offset: int) -> bool:
        """Return whether no hold reaches to `offset` or beyond."""
        firsts = self._firsts
        return not firsts or self.by_first[firsts[-1]].end <= offset

    def find_next(self, offset: int) -> Hold | None:
        """Return the first hold that begins at or after `offset`."""
        firsts = self._firsts
        if not firsts or firsts[-1] < offset:
            return None
        return self.by_first[firsts[bisect_left(firsts, offset)]]

    def find_all(self, first: int, end: int) -> list[Hold]:
        """Return the holds that begin in [first, end), in order."""
        firsts = self._firsts
        within = firsts[bisect_left(firsts, first) : bisect_left(firsts, end)]
        return [self.by_first[each] for each in within]

    def all_from(self, offset: int) -> Iterator[Hold]:
        """Yield the holds that begin at `offset` or later, in order."""
        for first in self._firsts[bisect_left(self._firsts, offset) :]:
            yield self.by_first[first]

    def pieces(self, first: int, end: int) -> list[tuple[int, int]]:
        """Return the parts of the range that are held, one part for each hold."""
        before = self.find(first)
        holds = self.find_all(first if before is None else before.first, end)
        pieces = [(max(hold.first, first), min(hold.end, end)) for hold in holds]
        return [(low, high) for low, high in pieces if low < high]

    def split(self, first: int, end: int) -> Hold | None:
        """Return a hold of exactly this range, cut out of the hold that covers the range; None if
        no hold covers it.
        """
        hold = self.find(first)
        if hold is None or hold.end < end:
            return None
        if hold.end == end and hold.first == first:
            return hold
        self.remove(hold.first)
        for low, high in ((hold.first, first), (first, end), (end, hold.end)):
            if low < high:
                self.add(Hold(low, high, hold.owner, hold.deadline, hold.count))
        return self.by_first[first]

    def _check(self) -> None:
        assert self._firsts == sorted(self.by_first)
