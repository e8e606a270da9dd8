"""What a group has handed out of one queue and not acked yet.

A message is acked, held by a consumer until its lease ends, given back, or not handed out yet.
All of these are kept as ranges, so a thousand messages delivered at once cost as much as one.
Guarded by the engine's lock.
"""

from __future__ import annotations

import math

from sortedcontainers import SortedDict

from fmq.consume.hold_map import Hold, HoldMap
from fmq.consume.key_order import KeyOrder
from fmq.consume.ready_queues import ReadyQueues
from fmq.tx.acks import AckSet
from fmq.tx.ledger import Queue


class Claim:
    """What one poll took for a member of the group: the offsets [first, end) of a queue.

    A delivery can be acked only while the claim that it came with still holds it.
    """

    __slots__ = ("end", "filter", "first", "holds", "member", "queue")

    def __init__(
        self,
        member: object,
        queue: Queue,
        holds: QueueHolds,
        first: int,
        end: int,
        filter_text: str = "",
    ) -> None:
        self.member = member
        self.queue = queue
        self.holds = holds
        self.first = first
        self.end = end
        self.filter = filter_text  # what its group wanted of the topic then; "": all


LATER = object()  # owns what waits for an earlier message of its key
FORMER = object()  # owns what clients of a server that was killed may still have


class QueueHolds:
    """What one group holds of one queue, and what it may hand out next."""

    def __init__(self, acked: AckSet, ready: ReadyQueues | None = None, number: int = 0) -> None:
        """`number` is that of the queue, which is added to `ready` when a hold is given back."""
        self._ready = ReadyQueues(range(1)) if ready is None else ready
        self._number = number
        self._acked = acked
        self._cursor = acked.floor  # nothing from here on was handed out
        self._holds = HoldMap()
        self._given_back: SortedDict[int, int] = SortedDict()  # first -> end
        self.earliest_deadline = math.inf  # no lease ends before it
        self.order: KeyOrder | None = None  # of a group that keeps the order of each key

    def belong_to(self, ready: ReadyQueues) -> None:
        """Let the polls that look at `ready` find the queue."""
        self._ready = ready
        if self.has_unleased():
            ready.unleased.add(self)

    # --- handing out ----------------------------------------------------------------------------

    def next_range(self, visible: int, first: int, limit: int) -> tuple[int, int] | None:
        """Return the next at most `limit` offsets to hand out, as one range in [first, visible).

        Messages that were given back come before those that were never handed out. The caller
        adds a hold for the range.
        """
        found = self._next_redelivery(first, limit) if self._given_back else None
        return self._next_new(visible, first, limit) if found is None else found

    def _next_redelivery(self, first: int, limit: int) -> tuple[int, int] | None:
        given_back = self._given_back
        while given_back:
            start, end = given_back.popitem(0)
            # A transaction gives back one message at a time. Hand them out together again.
            while given_back and given_back.peekitem(0)[0] <= end:
                end = max(end, given_back.popitem(0)[1])
            for low, high in self._acked.gaps(max(start, first), end):
                stop = min(high, low + limit)
                if stop < end:
                    given_back[stop] = end
                return low, stop
        return None

    def _next_new(self, visible: int, first: int, limit: int) -> tuple[int, int] | None:
        acked, holds = self._acked, self._holds
        start = max(self._cursor, first, acked.floor)
        while start < visible:
            gap = acked.gap(start, visible)
            if gap is None:
                break
            low, high = gap
            # From the cursor on, only transactions that were undecided at opening hold anything.
            if not holds.is_free_from(low):
                inside, following = holds.find(low), holds.find_next(low)
                if inside is not None:
                    start = inside.end
                    continue
                if following is not None:
                    high = min(high, following.first)
            self._cursor = end = min(high, low + limit)
            return low, end
        return None

    def hold(self, first: int, end: int, owner: object, deadline: float) -> None:
        """Hold a range that has no owner, until `deadline`."""
        if deadline < self.earliest_deadline:
            self.earliest_deadline = deadline
        self._holds.add(Hold(first, end, owner, deadline))

    def hold_again(self, first: int, end: int, owner: object, deadline: float) -> bool:
        """Hold a range that is not acked, and that `owner` has held before.

        Return False, and change nothing, if any of it has another owner than FORMER.
        """
        pieces = self._pieces(first, end)
        if any(not self.is_held_by(low, high, FORMER) for low, high in pieces):
            return False
        for low, high in pieces:
            self._split(low, high)
            self._holds.remove(low)
        given_back = self._given_back
        for start, stop in [*given_back.items()]:
            if start < end and first < stop:
                del given_back[start]
                if start < first:
                    given_back[start] = first
                if end < stop:
                    given_back[end] = stop
        self.hold(first, end, owner, deadline)
        return True

    def hold_former(self, upto: int, deadline: float) -> None:
        """Hold all that is free below `upto` for FORMER, until `deadline`."""
        start = self._cursor
        for low, high in self._acked.gaps(start, max(start, upto)):
            for first, end in [*self._pieces(low, high), (high, high)]:
                if low < first:
                    self.hold(low, first, FORMER, deadline)
                low = end
        self._cursor = max(start, upto)

    def is_acked(self, offset: int) -> bool:
        """Return whether the ack of `offset` is durable."""
        return offset in self._acked

    def unknown(self, end: int) -> list[tuple[int, int]]:
        """Return what is held below `end` and was never looked at by the order of keys."""
        assert self.order is not None
        return [
            (hold.first, min(hold.end, end))
            for hold in self._holds.find_all(0, end)
            if hold.first not in self.order
        ]

    def unacked(self, first: int, end: int) -> list[tuple[int, int]]:
        """Return the parts of a range that are not acked."""
        return [*self._acked.gaps(first, end)]

    def reserve(self, first: int, end: int, owner: object) -> None:
        """Hold a range for a transaction that was undecided when the engine was opened."""
        self._ready.unleased.add(self)
        self._holds.add(Hold(first, end, owner, math.inf))

    # --- changing owners ------------------------------------------------------------------------

    def is_held_by(self, first: int, end: int, owner: object) -> bool:
        """Return whether `owner` holds the whole range."""
        hold = self._holds.find(first)
        return hold is not None and hold.end >= end and hold.owner is owner

    def transfer(self, first: int, end: int, owner: object, heir: object) -> bool:
        """Pass the range from `owner` to `heir`, without a deadline.

        Return False, and change nothing, if `owner` does not hold all of it.
        """
        hold = self._holds.by_first.get(first)
        if hold is None or hold.end != end:
            if not self.is_held_by(first, end, owner):
                return False
            hold = self._split(first, end)
            assert hold is not None
        if hold.owner is not owner:
            return False
        self._ready.unleased.add(self)
        hold.owner, hold.deadline = heir, math.inf
        return True

    def transfer_back(self, first: int, end: int, owner: object, deadline: float) -> None:
        """Pass a held range to `owner`, with a new deadline."""
        hold = self._split(first, end)
        assert hold is not None, "the range is not held"
        if deadline < self.earliest_deadline:
            self.earliest_deadline = deadline
        self._ready.add(self._number)
        hold.owner, hold.deadline = owner, deadline

    def _split(self, first: int, end: int) -> Hold | None:
        """Return a hold of exactly this range, cut out of the one that covers it."""
        holds = self._holds
        hold = holds.find(first)
        if hold is None or hold.end < end:
            return None
        if hold.end == end and hold.first == first:
            return hold
        holds.remove(hold.first)
        for low, high in ((hold.first, first), (first, end), (end, hold.end)):
            if low < high:
                holds.add(Hold(low, high, hold.owner, hold.deadline))
        return holds.by_first[first]

    # --- ending holds ---------------------------------------------------------------------------

    def end_all(self) -> None:
        """End every hold: the group goes on elsewhere."""
        for first in [*self._holds.by_first]:
            self._holds.remove(first)
        self._given_back.clear()

    def end_acked(self, first: int, end: int) -> None:
        """End every hold in a range that was acked."""
        exact = self._holds.by_first.get(first)
        if exact is not None and exact.end == end:
            self._holds.remove(first)
        else:
            for low, high in self._pieces(first, end):
                self._split(low, high)
                self._holds.remove(low)
        if self.order is not None:
            for offset in range(first, end):
                for later in self.order.remove(offset):
                    if self.is_held_by(later, later + 1, LATER):
                        self.give_back(later, later + 1)

    def give_back(self, first: int, end: int) -> None:
        """End the hold of this range, and redeliver it at the next poll of the group."""
        self._ready.add(self._number)
        hold = self._split(first, end)
        if hold is not None:
            self._holds.remove(first)
            self._given_back[first] = max(end, self._given_back.get(first, 0))
            if self.order is not None and isinstance(hold.owner, Claim):
                self._take_later(first, end, hold.owner)

    def _take_later(self, first: int, end: int, claim: Claim) -> None:
        """Take from `claim` what must not be acked before the messages that it has given back."""
        assert self.order is not None
        for offset in range(first, end):
            for later in self.order.after(offset):
                if later >= end:
                    self.transfer(later, later + 1, claim, LATER)

    def give_back_all(self, first: int, end: int) -> None:
        """Redeliver everything that any owner holds in the range."""
        for low, high in self._pieces(first, end):
            self.give_back(low, high)

    def _pieces(self, first: int, end: int) -> list[tuple[int, int]]:
        """Return the parts of the range that are held, one for each hold."""
        before = self._holds.find(first)
        holds = self._holds.find_all(first if before is None else before.first, end)
        pieces = [(max(hold.first, first), min(hold.end, end)) for hold in holds]
        return [(low, high) for low, high in pieces if low < high]

    def give_back_of(self, member: object) -> None:
        """Redeliver all that `member` holds when it leaves the group."""
        for hold in [*self._holds.by_first.values()]:
            if isinstance(hold.owner, Claim) and hold.owner.member is member:
                self.give_back(hold.first, hold.end)

    def expire(self, now: float) -> bool:
        """Give back each hold whose lease has ended. Return whether there was one."""
        late = [hold for hold in self._holds.by_first.values() if hold.deadline <= now]
        for hold in late:
            self.give_back(hold.first, hold.end)
        self.earliest_deadline = self.next_deadline()
        return bool(late)

    def next_deadline(self) -> float:
        """Return when the next lease ends. Looks at every hold."""
        return min((hold.deadline for hold in self._holds.by_first.values()), default=math.inf)

    def has_unleased(self) -> bool:
        """Return whether a transaction, or an ack on its way to the disk, holds anything."""
        return any(hold.deadline == math.inf for hold in self._holds.by_first.values())

    def _check(self) -> None:
        self._holds._check()
        last = 0
        for first, hold in sorted(self._holds.by_first.items()):
            assert first == hold.first < hold.end, (first, hold.first, hold.end)
            assert first >= last, "two holds overlap"
            last = hold.end
