"""Ranges of offsets, each held by somebody; disjoint, and found by what they contain."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort


class Claim:
    """One poll that handed something out: only what it got may be acked as that."""

    __slots__ = ("member",)

    def __init__(self, member: object) -> None:
        self.member = member  # of the group


class Hold:
    """A range that is some consumer's until `deadline`; that of a transaction has none."""

    __slots__ = ("deadline", "end", "first", "owner")

    def __init__(self, first: int, end: int, owner: object, deadline: float) -> None:
        self.first = first
        self.end = end
        self.owner = owner
        self.deadline = deadline


class HeldRanges:
    """The holds of one group in one queue, by their first offset.

    A list keeps the order: almost everything is added at its end and removed near an end, and
    within a list of a hundred thousand a place is made faster than in a tree of this language.
    """

    __slots__ = ("_firsts", "by_first")

    def __init__(self) -> None:
        self.by_first: dict[int, Hold] = {}
        self._firsts: list[int] = []  # the same, in order

    def put(self, hold: Hold) -> None:
        first, firsts = hold.first, self._firsts
        known = first in self.by_first
        self.by_first[first] = hold
        if not firsts or first > firsts[-1]:
            firsts.append(first)
        elif not known:
            insort(firsts, first)

    def remove(self, first: int) -> None:
        firsts = self._firsts
        i = bisect_left(firsts, first)
        if i < len(firsts) and firsts[i] == first:
            del firsts[i]
        del self.by_first[first]

    def at(self, offset: int) -> Hold | None:
        """The hold that `offset` is part of."""
        exact = self.by_first.get(offset)
        if exact is not None:
            return exact
        i = bisect_right(self._firsts, offset) - 1
        if i < 0:
            return None
        hold = self.by_first[self._firsts[i]]
        return hold if hold.end > offset else None

    def end_before(self, offset: int) -> bool:
        """Whether nothing from `offset` on is held."""
        firsts = self._firsts
        return not firsts or self.by_first[firsts[-1]].end <= offset

    def behind(self, offset: int) -> Hold | None:
        """The first hold that begins at `offset` or behind it."""
        firsts = self._firsts
        if not firsts or firsts[-1] < offset:
            return None
        return self.by_first[firsts[bisect_left(firsts, offset)]]

    def between(self, first: int, end: int) -> list[Hold]:
        """The holds that begin from `first` on and before `end`."""
        firsts = self._firsts
        within = firsts[bisect_left(firsts, first) : bisect_left(firsts, end)]
        return [self.by_first[each] for each in within]

    def _check(self) -> None:
        assert self._firsts == sorted(self.by_first)
