"""What a group has handed out of one queue and not acked yet.

A message is acked, held by a consumer until its lease ends, given back (redelivery.py), or not
tried yet (untried.py). All of these are kept as ranges, so a thousand messages delivered at once
cost as much as one. Guarded by the engine's lock.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from fmq.consume.claims.backoff import DEFAULT
from fmq.consume.claims.by_priority import PriorityOrder
from fmq.consume.claims.claim import Claim
from fmq.consume.claims.hold_map import Hold, HoldMap
from fmq.consume.claims.key_order import KeyOrder
from fmq.consume.claims.ready_queues import ReadyQueues
from fmq.consume.claims.redelivery import Redeliveries
from fmq.consume.claims.untried import Untried
from fmq.tx.ledger.acks import AckSet
from fmq.tx.ledger.ledger import Queue

LATER = object()  # owns what waits for an earlier message of its key
FORMER = object()  # owns what clients of a server that was killed may still have


class QueueHolds:
    """What one group holds of one queue, and what it may hand out next."""

    def __init__(self, acked: AckSet, ready: ReadyQueues | None = None, number: int = 0) -> None:
        """`number` is that of the queue, which is added to `ready` when a hold is given back."""
        self._ready = ReadyQueues(range(1)) if ready is None else ready
        self._number = number
        self._acked = acked
        self._holds = HoldMap()
        self.redeliveries = Redeliveries()
        self._untried = Untried(acked, self._holds, self.redeliveries)
        self.earliest_deadline = math.inf  # no lease ends before it
        self.order: KeyOrder | None = None  # of a group that keeps the order of each key
        self.has_ended = False  # the group was moved, and goes on with other holds
        self._by_priority: PriorityOrder | None = None

    def belong_to(self, ready: ReadyQueues) -> None:
        """Let the polls that look at `ready` find the queue."""
        self._ready = ready
        if self.has_unleased():
            ready.unleased.add(self)

    # --- handing out ----------------------------------------------------------------------------

    def next_range(
        self, visible: int, first: int, limit: int, now: float = 0.0
    ) -> tuple[int, int, int] | None:
        """Return the next at most `limit` offsets to hand out, as one range in [first, visible),
        and how often each of them was tried before.

        New messages and those that were given back take turns, see redelivery.py. The caller adds
        a hold for the range.
        """
        if self.order is not None:
            self.end_order()
        redeliveries = self.redeliveries
        if not redeliveries.by_first:
            return self._untried.take(visible, first, limit)
        redeliveries.find_due(now, visible)
        new = self._untried.find(visible, first)
        while (found := redeliveries.take(limit, None if new is None else new[0])) is not None:
            for low, high in self._acked.gaps(max(found.first, first), found.end):
                if high < found.end:
                    redeliveries.add(high, found.end, found.count, found.due)
                return low, high, found.count
        return self._untried.take(visible, first, limit)

    def next_new_range(self, visible: int, first: int, limit: int) -> tuple[int, int] | None:
        """Return the next at most `limit` offsets that no caller has tried, as one range."""
        found = self._untried.take(visible, first, limit)
        return None if found is None else found[:2]

    def by_priority(self, queue: Queue, now: float) -> PriorityOrder:
        """Return the order of a queue whose messages have priorities."""
        if self.order is not None:
            self.end_order()
        order = self._by_priority
        if order is None:
            self._by_priority = order = PriorityOrder(
                queue, self._untried.cursor, self._untried.free_range
            )
        for first, end in self._untried.pop_returned():
            order.put_back(first, end)
        if self.redeliveries:
            self.redeliveries.find_due(now, queue.next)
            while (found := self.redeliveries.take(queue.next, None)) is not None:
                order.put_back(found.first, found.end, found.count, found.behind)
        return order

    def begin_order(self, filter_text: str) -> KeyOrder:
        """Keep the order of each key from now on."""
        if self.order is None:
            if self._by_priority is not None:
                self._end_priorities()
            self._untried.pop_returned()  # it is looked at with the rest
            self.order = KeyOrder(self._acked.floor, filter_text)
        return self.order

    def end_order(self) -> None:
        """Go on in the order of offsets: the group does not keep that of keys any more."""
        self.order = None
        self._untried.begin_again()
        for hold in [*self._holds.by_first.values()]:
            if hold.owner is LATER:
                self.give_back(hold.first, hold.end)

    def _end_priorities(self) -> None:
        """Go on without priorities."""
        assert self._by_priority is not None
        returned, self._by_priority = self._by_priority.take_back(), None
        for first, end, count in returned:
            if count:
                self.redeliveries.add(first, end, count, 0.0)

    @property
    def floor(self) -> int:
        """The offset below which all is acked."""
        return self._acked.floor

    def hold(self, first: int, end: int, owner: object, deadline: float, count: int = 0) -> None:
        """Hold a range that has no owner, until `deadline`. It was tried `count` times."""
        if deadline < self.earliest_deadline:
            self.earliest_deadline = deadline
        self._holds.add(Hold(first, end, owner, deadline, count))

    def count_tries(self, ranges: list[tuple[int, int]], more: int = 1) -> None:
        """Note that held ranges are tried once more."""
        for first, end in ranges:
            hold = self._holds.by_first.get(first)
            if hold is None or hold.end != end:
                hold = self._holds.split(first, end)
                assert hold is not None, "the range is not held"
            hold.count += more

    def count_of(self, offset: int) -> int:
        """Return how often a held message was tried."""
        hold = self._holds.find(offset)
        return 0 if hold is None else hold.count

    def tried_before(self, first: int, end: int, count: int, due: float) -> None:
        """Hand out a range from the time `due` on. It was tried before the engine was opened."""
        for low, high in self._acked.gaps(first, end):
            self.redeliveries.add(low, high, count, due)

    def hold_again(self, first: int, end: int, owner: object, deadline: float) -> bool:
        """Hold a range that is not acked, and that `owner` has held before.

        Return False, and change nothing, if any of it has another owner than FORMER.
        """
        pieces = self._holds.pieces(first, end)
        if any(not self.is_held_by(low, high, FORMER) for low, high in pieces):
            return False
        tried = self.redeliveries.remove(first, end)
        for low, high in pieces:
            hold = self._holds.split(low, high)
            assert hold is not None
            tried.append((low, high, hold.count))
            self._holds.remove(low)
        self._untried.remove(first, end)
        if self.order is not None:
            self.order.take_these(first, end)
        at = first
        for low, high, count in (*sorted(tried), (end, end, 0)):
            if at < low:
                self.hold(at, low, owner, deadline)
            if low < high:
                self.hold(low, high, owner, deadline, count)
            at = high
        return True

    def hold_former(self, upto: int, deadline: float, now: float) -> None:
        """Hold all that is free below `upto` for FORMER, until `deadline`; not what is due after
        `now`, for that was given back.
        """
        start = self._untried.cursor
        later = [each for each in self.redeliveries.within(start, upto) if each.due > now]
        waits = [(each.first, each.end) for each in later]
        for low, high in self._acked.gaps(start, max(start, upto)):
            held = [each for each in waits if low < each[1] and each[0] < high]
            for first, end in [*sorted([*held, *self._holds.pieces(low, high)]), (high, high)]:
                self._hold_former(low, min(first, high), deadline)
                low = max(low, end)
        self._untried.cursor = max(start, upto)

    def _hold_former(self, first: int, end: int, deadline: float) -> None:
        """Hold a free range for FORMER."""
        if first >= end:
            return
        for low, high, count in (*self.redeliveries.remove(first, end), (end, end, 0)):
            if first < low:
                self.hold(first, low, FORMER, deadline)
            if low < high:
                self.hold(low, high, FORMER, deadline, count)
            first = high

    def is_acked(self, offset: int) -> bool:
        """Return whether `offset` is acked."""
        return offset in self._acked

    def busy(self, first: int, end: int) -> set[int]:
        """Return the offsets of a range that are held, or wait to be redelivered."""
        ranges = self._holds.pieces(first, end)
        ranges += [(each.first, each.end) for each in self.redeliveries.within(first, end)]
        return {each for low, high in ranges for each in range(max(low, first), min(high, end))}

    def hold_later(self, offset: int, count: int) -> None:
        """Hold a message that was tried until those before it of its key are acked."""
        self._ready.unleased.add(self)
        self._holds.add(Hold(offset, offset + 1, LATER, math.inf, count))

    def unacked(self, first: int, end: int) -> list[tuple[int, int]]:
        """Return the parts of a range that are not acked."""
        return [*self._acked.gaps(first, end)]

    def reserve(self, first: int, end: int, owner: object) -> None:
        """Hold a range for a transaction that was undecided when the engine was opened."""
        self._ready.unleased.add(self)
        for low, high, count in (*self.redeliveries.remove(first, end), (end, end, 0)):
            if first < low:
                self._holds.add(Hold(first, low, owner, math.inf))
            if low < high:
                self._holds.add(Hold(low, high, owner, math.inf, count))
            first = high

    # --- changing owners ------------------------------------------------------------------------

    def is_held_by(self, first: int, end: int, owner: object) -> bool:
        """Return whether `owner` holds the whole range."""
        hold = self._holds.by_first.get(first) or self._holds.find(first)
        return hold is not None and hold.end >= end and hold.owner is owner

    def transfer(self, first: int, end: int, owner: object, heir: object) -> bool:
        """Pass the range from `owner` to `heir`, without a deadline.

        Return False, and change nothing, if `owner` does not hold all of it.
        """
        hold = self._holds.by_first.get(first)
        if hold is None or hold.end != end:
            if not self.is_held_by(first, end, owner):
                return False
            hold = self._holds.split(first, end)
            assert hold is not None
        if hold.owner is not owner:
            return False
        self._ready.unleased.add(self)
        hold.owner, hold.deadline = heir, math.inf
        return True

    def transfer_back(self, first: int, end: int, owner: object, deadline: float) -> None:
        """Pass a held range to `owner`, with a new deadline."""
        hold = self._holds.split(first, end)
        assert hold is not None, "the range is not held"
        if deadline < self.earliest_deadline:
            self.earliest_deadline = deadline
        self._ready.add(self._number)
        hold.owner, hold.deadline = owner, deadline

    # --- ending holds ---------------------------------------------------------------------------

    def end_all(self) -> None:
        """End every hold: the group goes on elsewhere."""
        self.has_ended = True
        for first in [*self._holds.by_first]:
            self._holds.remove(first)
        self._untried.pop_returned()
        self.redeliveries.clear()

    def end_acked(self, first: int, end: int) -> None:
        """End every hold in a range that was acked."""
        exact = self._holds.by_first.get(first)
        if exact is not None and exact.end == end:
            self._holds.remove(first)
        else:
            for low, high in self._holds.pieces(first, end):
                self._holds.split(low, high)
                self._holds.remove(low)

    def hand_on(self, first: int, end: int) -> bool:
        """Let the next messages of the keys go on, as the ack of a range is durable. Return whether
        one may be handed out now.
        """
        assert self.order is not None
        is_free, left = self.order.remove(first, end)
        for later in left:
            if self.is_held_by(later, later + 1, LATER):
                self.give_back(later, later + 1)
                is_free = True
        if is_free:
            self._ready.add(self._number)
        return is_free

    def give_back(self, first: int, end: int, due: float = 0.0, count: int | None = None) -> None:
        """End the hold of this range, and hand it out again: what was not tried at the next poll
        of the group, the rest from the time `due` on. `count` overrides how often it was tried.
        """
        self._ready.add(self._number)
        hold = self._holds.split(first, end)
        if hold is None:
            return
        self._holds.remove(first)
        if self.order is not None and hold.owner is not LATER:
            self._take_later(first, end)
        if count is not None or hold.count:
            times = hold.count if count is None else count
            self.redeliveries.add(first, end, times, due)
        elif self.order is None:
            self._untried.put_back(first, end)
        else:
            self._put_back_in_order(first, end)

    def _take_later(self, first: int, end: int) -> None:
        """Take from its claim what must not be acked before the messages that are given back."""
        assert self.order is not None
        for offset in range(first, end):
            for later in reversed(self.order.after(offset)):
                hold = None if later < end else self._holds.find(later)
                if hold is None or not isinstance(hold.owner, Claim):
                    continue
                if hold.count:
                    self.transfer(later, later + 1, hold.owner, LATER)
                else:
                    self._holds.split(later, later + 1)
                    self._holds.remove(later)
                    self._put_back_in_order(later, later + 1)

    def _put_back_in_order(self, first: int, end: int) -> None:
        """Hand out a range again that was not tried."""
        assert self.order is not None
        for offset in range(end - 1, first - 1, -1):
            if self.order.after(offset):
                self.redeliveries.add(offset, offset + 1, 0, 0.0)  # it goes before those
            else:
                self.order.put_back(offset, offset + 1)

    def give_back_held(self, first: int, end: int, owner: object) -> None:
        """Give back what `owner` holds of the range. It may have lost a part of it: where the order
        of keys is kept, to what waits for a message that was given back.
        """
        for low, high in reversed(self._holds.pieces(first, end)):
            if self.is_held_by(low, high, owner):
                self.give_back(low, high)

    def give_back_all(self, first: int, end: int) -> None:
        """Redeliver everything that any owner holds in the range."""
        for low, high in reversed(self._holds.pieces(first, end)):
            self.give_back(low, high)

    def give_back_of(self, member: object) -> None:
        """Redeliver all that `member` holds when it leaves the group."""
        for hold in _last_first(self.held_by(member)):
            self.give_back(hold.first, hold.end)

    def held_by(self, member: object) -> list[Hold]:
        """Return the holds of the claims of `member`."""
        return [
            hold
            for hold in self._holds.by_first.values()
            if isinstance(hold.owner, Claim) and hold.owner.member is member
        ]

    def in_hand_of(self, member: object, now: float) -> tuple[int, float]:
        """Return how many messages `member` has, and when the first of its leases ends."""
        held = [hold for hold in self.held_by(member) if hold.deadline > now]
        count = sum(hold.end - hold.first for hold in held)
        return count, min((hold.deadline for hold in held), default=math.inf)

    def extend(self, first: int, end: int, deadline: float) -> None:
        """Let the hold of a range that is held end at `deadline`."""
        hold = self._holds.split(first, end)
        assert hold is not None, "the range is not held"
        hold.deadline = deadline
        if deadline < self.earliest_deadline:
            self.earliest_deadline = deadline
            self._ready.add(self._number)

    def expire(self, now: float) -> bool:
        """Give back each hold whose lease has ended. Return whether there was one."""
        late = [hold for hold in self._holds.by_first.values() if hold.deadline <= now]
        for hold in _last_first(late):
            # A message that blocks its handlers, or kills them, waits longer each time.
            retry = hold.owner.member.retry if isinstance(hold.owner, Claim) else DEFAULT
            self.give_back(hold.first, hold.end, hold.deadline + retry.delay(hold.count))
        self.earliest_deadline = self.next_deadline()
        return bool(late)

    def next_deadline(self) -> float:
        """Return when the next lease ends. Looks at every hold."""
        return min((hold.deadline for hold in self._holds.by_first.values()), default=math.inf)

    def has_unleased(self) -> bool:
        """Return whether a transaction holds anything."""
        return any(hold.deadline == math.inf for hold in self._holds.by_first.values())

    def _check(self) -> None:
        self._holds._check()
        last = 0
        for first, hold in sorted(self._holds.by_first.items()):
            assert first == hold.first < hold.end, (first, hold.first, hold.end)
            assert first >= last, "two holds overlap"
            last = hold.end


def _last_first(holds: Iterable[Hold]) -> list[Hold]:
    """Return the holds from the last one to the first, the order in which to give many back.

    To give one back changes later holds of its claim where the order of keys is kept, not earlier
    ones.
    """
    return sorted(holds, key=lambda hold: hold.first, reverse=True)
