"""What a group has handed out of one queue and not yet got an ack for.

A message is acked, held by a consumer until its lease ends, waiting to come again, or fresh.
Everything is kept in ranges, so a thousand messages delivered at once cost as much as one.
Guarded by the engine's lock.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fmq.tx.acks import Acked

if TYPE_CHECKING:
    from sortedcontainers import SortedDict


class Hold:
    """A range that is some consumer's until `deadline`; that of a transaction has none."""

    __slots__ = ("deadline", "end", "first", "owner")

    def __init__(self, first: int, end: int, owner: object, deadline: float) -> None:
        self.first = first
        self.end = end
        self.owner = owner
        self.deadline = deadline


class QueueHolds:
    """One group's view of one queue."""

    def __init__(self, acked: Acked) -> None:
        from sortedcontainers import SortedDict  # here, for the reason in fmq/tx/acks.py

        self.acked = acked
        self.cursor = acked.floor
        self._holds: SortedDict[int, Hold] = SortedDict()  # by first
        self._again: SortedDict[int, int] = SortedDict()  # first -> end
        self._earliest = math.inf  # no lease ends before

    def claim(
        self, visible: int, first: int, limit: int, owner: object, deadline: float
    ) -> Hold | None:
        """Hold the next messages for `owner`: those that come again first, then fresh ones.

        `first` and `visible` bound what the queue has. One range, at most `limit` messages.
        """
        try:
            found = self._next_again(first, limit) or self._next_fresh(visible, first, limit)
            if found is None:
                return None
            if deadline < self._earliest:
                self._earliest = deadline
            hold = self._holds[found[0]] = Hold(*found, owner, deadline)
        except BaseException:
            # An interrupt: look once more at all that is neither acked nor held.
            self._again.clear()
            self.cursor = self.acked.floor
            raise
        return hold

    def _next_again(self, first: int, limit: int) -> tuple[int, int] | None:
        while self._again:
            start, end = self._again.popitem(0)
            # Given back one by one, as by a transaction: handed out together again.
            while self._again and self._again.peekitem(0)[0] <= end:
                end = max(end, self._again.popitem(0)[1])
            for low, high in self.acked.gaps(max(start, first), end):
                stop = min(high, low + limit)
                if stop < end:
                    self._again[stop] = end
                return low, stop
        return None

    def _next_fresh(self, visible: int, first: int, limit: int) -> tuple[int, int] | None:
        start = max(self.cursor, first)
        while start < visible:
            acked = self.acked
            if start < acked.floor:
                start = acked.floor
                continue
            gap = next(acked.gaps(start, visible), None)
            if gap is None:
                break
            low, high = gap
            i = self._holds.bisect_left(low)
            if i and self._holds.peekitem(i - 1)[1].end > low:
                start = self._holds.peekitem(i - 1)[1].end  # a transaction's, from before a restart
                continue
            if i < len(self._holds):
                high = min(high, self._holds.peekitem(i)[0])
            if high <= low:
                start = self._holds.peekitem(i)[1].end
                continue
            self.cursor = min(high, low + limit)
            return low, self.cursor
        return None

    def reserve(self, first: int, end: int, owner: object) -> None:
        """A transaction from before a restart holds the range."""
        self._holds[first] = Hold(first, end, owner, math.inf)

    def held_by(self, first: int, end: int, owner: object) -> bool:
        """Whether the whole range is `owner`'s."""
        hold = self._find(first)
        return hold is not None and hold.end >= end and hold.owner is owner

    def _find(self, offset: int) -> Hold | None:
        exact: Hold | None = self._holds.get(offset)
        if exact is not None:
            return exact
        i = self._holds.bisect_right(offset) - 1
        if i < 0:
            return None
        hold: Hold = self._holds.peekitem(i)[1]
        return hold if hold.end > offset else None

    def split(self, first: int, end: int) -> Hold | None:
        """The hold of exactly this range, cut out of the one it is part of."""
        hold = self._find(first)
        if hold is None or hold.end < end:
            return None
        if (hold.first, hold.end) == (first, end):
            return hold
        del self._holds[hold.first]
        for low, high in ((hold.first, first), (first, end), (end, hold.end)):
            if low < high:
                self._holds[low] = Hold(low, high, hold.owner, hold.deadline)
        part: Hold = self._holds[first]
        return part

    def hand_over(self, first: int, end: int, owner: object, deadline: float) -> None:
        """The range, which somebody holds, is `owner`'s from now on."""
        hold = self.split(first, end)
        assert hold is not None, "only what is held can be handed over"
        hold.owner, hold.deadline = owner, deadline
        if deadline < self._earliest:
            self._earliest = deadline

    def done(self, first: int, end: int) -> None:
        """The range is acked: nobody holds it any more."""
        exact = self._holds.get(first)
        if exact is not None and exact.end == end:
            del self._holds[first]
            return
        for low, high in self._held(first, end):
            self.split(low, high)
            del self._holds[low]

    def free(self, first: int, end: int) -> None:
        """Whatever is held of the range comes again, whoever holds it."""
        for low, high in self._held(first, end):
            self.give_back(low, high)

    def _held(self, first: int, end: int) -> list[tuple[int, int]]:
        """What is held of the range, in pieces of one hold each."""
        before = self._find(first)
        start = first if before is None else before.first
        starts = self._holds.irange(start, end, inclusive=(True, False))
        holds = [self._holds[each] for each in starts]
        pieces = [(max(hold.first, first), min(hold.end, end)) for hold in holds]
        return [(low, high) for low, high in pieces if low < high]

    def give_back(self, first: int, end: int) -> None:
        """The range comes again, to whoever asks next."""
        hold = self.split(first, end)
        if hold is not None:
            del self._holds[first]
            self._again[first] = max(end, self._again.get(first, 0))

    def expire(self, now: float) -> bool:
        """Give back what is held longer than its lease; whether there was any."""
        if now < self._earliest:
            return False
        late = [hold for hold in self._holds.values() if hold.deadline <= now]
        for hold in late:
            self.give_back(hold.first, hold.end)
        self._earliest = self.next_deadline()
        return bool(late)

    def release(self, owner: object) -> None:
        """`owner` leaves: all that it holds comes again."""
        for hold in [hold for hold in self._holds.values() if hold.owner is owner]:
            self.give_back(hold.first, hold.end)

    def next_deadline(self) -> float:
        """When the next lease ends."""
        return min((hold.deadline for hold in self._holds.values()), default=math.inf)

    def _check(self) -> None:
        last = 0
        for first, hold in self._holds.items():
            assert first == hold.first < hold.end, (first, hold.first, hold.end)
            assert first >= last, "two holds overlap"
            last = hold.end
