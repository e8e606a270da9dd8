"""What a group has handed out of one queue and not yet got an ack for.

A message is acked, held by a consumer until its lease ends, waiting to come again, or fresh.
Everything is kept in ranges, so a thousand messages delivered at once cost as much as one.
Guarded by the engine's lock.
"""

from __future__ import annotations

import math

from sortedcontainers import SortedDict

from fmq.consume.ranges import Claim, HeldRanges, Hold
from fmq.consume.ready_queues import ReadyQueues
from fmq.tx.acks import AckSet


class QueueHolds:
    """One group's view of one queue."""

    def __init__(self, acked: AckSet, ready: ReadyQueues | None = None, number: int = 0) -> None:
        """`ready` is told whenever the queue with that number may have something again."""
        self._ready = ReadyQueues(1) if ready is None else ready
        self._number = number
        self.acked = acked
        self.cursor = acked.floor
        self._held = HeldRanges()
        self._again: SortedDict[int, int] = SortedDict()  # first -> end
        self.earliest = math.inf  # no lease ends before: then there is nothing to `expire`

    @property
    def is_holding(self) -> bool:
        """Whether something is held that is neither acked nor given back."""
        return bool(self._held.by_first)

    def claim(
        self, visible: int, first: int, limit: int, owner: object, deadline: float
    ) -> Hold | None:
        """Hold the next messages for `owner`: those that come again first, then fresh ones.

        `first` and `visible` bound what the queue has. One range, at most `limit` messages.
        """
        found = self._next_again(first, limit) if self._again else None
        if found is None:
            found = self._next_fresh(visible, first, limit)
        if found is None:
            return None
        if deadline < self.earliest:
            self.earliest = deadline
        hold = Hold(*found, owner, deadline)
        self._held.put(hold)
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
        acked, held = self.acked, self._held
        start = max(self.cursor, first, acked.floor)
        while start < visible:
            gap = acked.gap(start, visible)
            if gap is None:
                break
            low, high = gap
            if not held.end_before(low):
                inside, next_one = held.at(low), held.behind(low)
                if inside is not None:
                    start = inside.end  # a transaction's, from before a restart
                    continue
                if next_one is not None:
                    high = min(high, next_one.first)
            self.cursor = end = min(high, low + limit)
            return low, end
        return None

    def reserve(self, first: int, end: int, owner: object) -> None:
        """A transaction from before a restart holds the range."""
        self._ready.reserved.add(self)
        self._held.put(Hold(first, end, owner, math.inf))

    def held_by(self, first: int, end: int, owner: object) -> bool:
        """Whether the whole range is `owner`'s."""
        hold = self._held.at(first)
        return hold is not None and hold.end >= end and hold.owner is owner

    def split(self, first: int, end: int) -> Hold | None:
        """The hold of exactly this range, cut out of the one it is part of."""
        held = self._held
        hold = held.at(first)
        if hold is None or hold.end < end:
            return None
        if hold.end == end and hold.first == first:
            return hold
        held.remove(hold.first)
        for low, high in ((hold.first, first), (first, end), (end, hold.end)):
            if low < high:
                held.put(Hold(low, high, hold.owner, hold.deadline))
        return held.by_first[first]

    def exchange(self, first: int, end: int, owner: object, heir: object) -> bool:
        """The range is `heir`'s, without a deadline, if it was `owner`'s; whether it was."""
        hold = self._held.by_first.get(first)
        if hold is None or hold.end != end:
            if not self.held_by(first, end, owner):
                return False
            hold = self.split(first, end)
            assert hold is not None
        if hold.owner is not owner:
            return False
        self._ready.reserved.add(self)
        hold.owner, hold.deadline = heir, math.inf
        return True

    def hand_over(self, first: int, end: int, owner: object, deadline: float) -> None:
        """The range, which somebody holds, is `owner`'s from now on."""
        hold = self.split(first, end)
        assert hold is not None, "only what is held can be handed over"
        if deadline < self.earliest:
            self.earliest = deadline
        self._ready.add(self._number)
        hold.owner, hold.deadline = owner, deadline

    def done(self, first: int, end: int) -> None:
        """The range is acked: nobody holds it any more."""
        exact = self._held.by_first.get(first)
        if exact is not None and exact.end == end:
            self._held.remove(first)
            return
        for low, high in self._pieces(first, end):
            self.split(low, high)
            self._held.remove(low)

    def free(self, first: int, end: int) -> None:
        """Whatever is held of the range comes again, whoever holds it."""
        for low, high in self._pieces(first, end):
            self.give_back(low, high)

    def _pieces(self, first: int, end: int) -> list[tuple[int, int]]:
        """What is held of the range, in pieces of one hold each."""
        before = self._held.at(first)
        holds = self._held.between(first if before is None else before.first, end)
        pieces = [(max(hold.first, first), min(hold.end, end)) for hold in holds]
        return [(low, high) for low, high in pieces if low < high]

    def give_back(self, first: int, end: int) -> None:
        """The range comes again, to whoever asks next."""
        self._ready.add(self._number)
        hold = self.split(first, end)
        if hold is not None:
            self._held.remove(first)
            self._again[first] = max(end, self._again.get(first, 0))

    def expire(self, now: float) -> bool:
        """Give back what is held longer than its lease; whether there was any."""
        late = [hold for hold in self._held.by_first.values() if hold.deadline <= now]
        for hold in late:
            self.give_back(hold.first, hold.end)
        self.earliest = self.next_deadline()
        return bool(late)

    def release(self, member: object) -> None:
        """Redeliver all that `member`, which leaves the group, holds."""
        for hold in [*self._held.by_first.values()]:
            if isinstance(hold.owner, Claim) and hold.owner.member is member:
                self.give_back(hold.first, hold.end)

    def await_transactions(self) -> bool:
        """Whether something is held without an end."""
        return any(hold.deadline == math.inf for hold in self._held.by_first.values())

    def next_deadline(self) -> float:
        """When the next lease ends."""
        return min((hold.deadline for hold in self._held.by_first.values()), default=math.inf)

    def _check(self) -> None:
        self._held._check()
        last = 0
        for first, hold in sorted(self._held.by_first.items()):
            assert first == hold.first < hold.end, (first, hold.first, hold.end)
            assert first >= last, "two holds overlap"
            last = hold.end
