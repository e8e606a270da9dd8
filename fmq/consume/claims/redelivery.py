"""The messages of one queue that a group has given back, and when each is handed out again.

A message that was given back becomes due at a time. From then on it has its turn: after those that
were due before it, and after the new messages that existed when a poll first found it due. So new
messages do not starve, nor do those that were given back.

An example: the queue has new messages 50 to 59 when a poll finds message 7 due. The polls hand out
50 to 59, then 7, then 60 and later ones, which have come since.

Times are those of `clock.monotonic`. Guarded by the engine's lock.
"""

from __future__ import annotations

import math
from collections import deque
from heapq import heappop, heappush

from sortedcontainers import SortedDict


class GivenBack:
    """A range of messages that were tried equally often and become due at the same time."""

    __slots__ = ("behind", "count", "due", "end", "first", "is_gone")

    def __init__(self, first: int, end: int, count: int, due: float) -> None:
        self.first = first
        self.end = end
        self.count = count  # how often each message was tried
        self.due = due
        # New messages with a lower offset go before the range; -1 while no poll has found the range
        # due.
        self.behind = -1
        self.is_gone = False

    def __lt__(self, other: GivenBack) -> bool:
        return (self.due, self.first) < (other.due, other.first)


class Redeliveries:
    """The ranges of one queue that wait to be handed out again."""

    __slots__ = ("_due", "_later", "by_first", "end")

    def __init__(self) -> None:
        self.by_first: SortedDict[int, GivenBack] = SortedDict()
        self._later: list[GivenBack] = []  # a heap by time: ranges that no poll has found due yet
        # Ranges that a poll has found due, in the order of their turns.
        self._due: deque[GivenBack] = deque()
        self.end = 0  # no range reaches beyond this offset

    def __bool__(self) -> bool:
        return bool(self.by_first)

    def add(self, first: int, end: int, count: int, due: float) -> None:
        """Hand the range out again from the time `due` on."""
        if self.by_first:
            self._join(waiting := GivenBack(first, end, count, due))
        else:
            waiting = GivenBack(first, end, count, due)
            self._later.clear()
            self._due.clear()
        self.by_first[waiting.first] = waiting
        self.end = max(self.end, end)
        heappush(self._later, waiting)

    def _join(self, waiting: GivenBack) -> None:
        """Join `waiting` with its neighbours if they were tried equally often and are due at the
        same time.
        """
        ranges = self.by_first
        i = ranges.bisect_left(waiting.first)
        before = ranges.peekitem(i - 1)[1] if i else None
        if before is not None and before.end == waiting.first and _alike(before, waiting):
            self._remove(before)
            waiting.first = before.first
        after = ranges.get(waiting.end)
        if after is not None and _alike(after, waiting):
            self._remove(after)
            waiting.end = after.end

    def _remove(self, waiting: GivenBack) -> None:
        """Remove a range. The heap and the line of turns still have it, and skip it later."""
        waiting.is_gone = True
        del self.by_first[waiting.first]

    def _put_back(self, of: GivenBack, first: int, end: int) -> None:
        """Let a part of a removed range wait on, with the same turn."""
        part = GivenBack(first, end, of.count, of.due)
        part.behind = of.behind
        self.by_first[first] = part
        if of.behind < 0:
            heappush(self._later, part)
        else:
            self._due.appendleft(part)

    def find_due(self, now: float, visible: int) -> None:
        """Let the range be handed out again from the time `due` on."""
        later = self._later
        while later and (later[0].is_gone or later[0].due <= now):
            waiting = heappop(later)
            if not waiting.is_gone:
                waiting.behind = visible
                self._due.append(waiting)

    def next_turn(self, new: int | None) -> GivenBack | None:
        """Return the range whose turn it is; None if a new message comes first. `new` is the first
        offset that was never handed out, or None.
        """
        due = self._due
        while due and due[0].is_gone:
            due.popleft()
        return None if not due or (new is not None and new < due[0].behind) else due[0]

    def take(self, limit: int, new: int | None) -> GivenBack | None:
        """Remove and return at most `limit` messages of the range whose turn it is."""
        waiting = self.next_turn(new)
        if waiting is None:
            return None
        self._due.popleft()
        self._remove(waiting)
        waiting.is_gone = False
        # Hand out together messages that were given back one by one.
        while waiting.end - waiting.first < limit:
            i = self.by_first.bisect_left(waiting.first)
            before = self.by_first.peekitem(i - 1)[1] if i else None
            if before is None or before.end < waiting.first or not _turns(before, waiting):
                break
            self._remove(before)
            waiting.first = before.first
        while waiting.end - waiting.first < limit:
            after = self.by_first.get(waiting.end)
            if after is None or not _turns(after, waiting):
                break
            self._remove(after)
            waiting.end = after.end
        if waiting.end - waiting.first > limit:
            self._put_back(waiting, waiting.first + limit, waiting.end)
            waiting.end = waiting.first + limit
        return waiting

    def remove(self, first: int, end: int) -> list[tuple[int, int, int]]:
        """Remove the parts of a range that wait. Return them, each with how often it was tried."""
        found = []
        for waiting in self.within(first, end):
            self._remove(waiting)
            if waiting.first < first:
                self._put_back(waiting, waiting.first, first)
            if end < waiting.end:
                self._put_back(waiting, end, waiting.end)
            low, high = max(waiting.first, first), min(waiting.end, end)
            found.append((low, high, waiting.count))
        return found

    def within(self, first: int, end: int) -> list[GivenBack]:
        """Return the ranges that have a message in [first, end), in order."""
        ranges = self.by_first
        found, i = [], max(ranges.bisect_right(first) - 1, 0)
        while i < len(ranges):
            waiting = ranges.peekitem(i)[1]
            if waiting.first >= end:
                break
            if waiting.end > first:
                found.append(waiting)
            i += 1
        return found

    def next_due(self) -> float:
        """Return when the next of the ranges that are not due becomes due."""
        while self._later and self._later[0].is_gone:
            heappop(self._later)
        return self._later[0].due if self._later else math.inf

    def clear(self) -> None:
        """Forget all ranges."""
        self.by_first.clear()
        self._later.clear()
        self._due.clear()
        self.end = 0

    def _check(self) -> None:
        last = 0
        for first, waiting in self.by_first.items():
            assert first == waiting.first < waiting.end and not waiting.is_gone
            assert first >= last, "two ranges overlap"
            last = waiting.end
        queued = [each for each in (*self._later, *self._due) if not each.is_gone]
        assert {*queued} == {*self.by_first.values()} and len(queued) == len(self.by_first)


def _turns(one: GivenBack, other: GivenBack) -> bool:
    """Return whether `one` can be handed out together with `other`, whose turn it is."""
    return one.behind >= 0 and one.count == other.count


def _alike(one: GivenBack, other: GivenBack) -> bool:
    return one.count == other.count and one.due == other.due and one.behind == other.behind
