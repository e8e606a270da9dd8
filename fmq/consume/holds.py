"""What a group has handed out of one queue and not acked yet.

A message is acked, held by a consumer until its lease ends, given back (redelivery.py), or not
handed out yet.
All of these are kept as ranges, so a thousand messages delivered at once cost as much as one.
Guarded by the engine's lock.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Protocol

from sortedcontainers import SortedDict

from fmq.consume.backoff import DEFAULT, Retry
from fmq.consume.by_priority import PriorityOrder
from fmq.consume.hold_map import Hold, HoldMap
from fmq.consume.key_order import KeyOrder
from fmq.consume.ready_queues import ReadyQueues
from fmq.consume.redelivery import Redeliveries
from fmq.tx.acks import AckSet
from fmq.tx.ledger import Queue


class Trier(Protocol):
    """A member of the group."""

    @property
    def retry(self) -> Retry: ...


class Claim:
    """What one poll took for a member of the group: the offsets [first, end) of a queue, or some of
    them where messages have priorities.

    A delivery can be acked only while the claim that it came with still holds it.
    """

    __slots__ = (
        *("count", "end", "filter", "first", "holds", "member", "now_us", "queue", "ranges"),
    )

    def __init__(
        self,
        member: Trier,
        queue: Queue,
        holds: QueueHolds,
        first: int,
        end: int,
        filter_text: str = "",
        count: int = 0,
    ) -> None:
        self.member = member
        self.queue = queue
        self.holds = holds
        self.first = first
        self.end = end
        self.count = count  # how often each of its messages was tried before
        self.filter = filter_text  # what its group wanted of the topic then; "": all
        self.now_us = 0  # what expires until then is passed over; 0: nothing of it expires
        self.ranges = [(first, end)]  # in the order in which they are handed out

    def add(self, first: int, end: int) -> None:
        """Add a range, which is handed out after those that are there."""
        self.ranges.append((first, end))
        self.first, self.end = min(self.first, first), max(self.end, end)

    def may_have_expired(self, now_us: int) -> bool:
        """Return whether a message of it may have expired by now."""
        spans = self.queue.spans
        return spans is not None and any(
            spans.may_have_expired(*each, now_us) for each in self.ranges
        )


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
        self._unread: SortedDict[int, int] = SortedDict()  # first -> end, claimed and not tried
        self.redeliveries = Redeliveries()
        self.earliest_deadline = math.inf  # no lease ends before it
        self.order: KeyOrder | None = None  # of a group that keeps the order of each key
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
        if self._by_priority is not None:
            self._end_priorities()
        redeliveries = self.redeliveries
        if not redeliveries:
            return self._take_new(visible, first, limit)
        redeliveries.find_due(now, visible)
        new = self._find_new(visible, first)
        while (found := redeliveries.take(limit, None if new is None else new[0])) is not None:
            for low, high in self._acked.gaps(max(found.first, first), found.end):
                if high < found.end:
                    redeliveries.add(high, found.end, found.count, found.due)
                return low, high, found.count
        return self._take_new(visible, first, limit)

    def _take_new(self, visible: int, first: int, limit: int) -> tuple[int, int, int] | None:
        """Return the next range that no caller has tried, which is handed out now."""
        found = self._find_new(visible, first)
        if found is None:
            return None
        low, high = found
        end = min(high, low + limit)
        if self._unread.pop(low, None) is not None:
            if end < high:
                self._unread[end] = high
        else:
            self._cursor = end
        return low, end, 0

    def _find_new(self, visible: int, first: int) -> tuple[int, int] | None:
        """Return the next range that no caller has tried. It stays as it is."""
        unread, acked, holds = self._unread, self._acked, self._holds
        while unread:
            start, end = unread.popitem(0)
            # What was claimed together and given back in pieces is handed out together again.
            while unread and unread.peekitem(0)[0] <= end:
                end = max(end, unread.popitem(0)[1])
            gap = acked.gap(max(start, first), end)
            if gap is not None:
                if gap[1] < end:
                    unread[gap[1]] = end
                unread[gap[0]] = gap[1]
                return gap
        start = max(self._cursor, first, acked.floor)
        while start < visible:
            gap = acked.gap(start, visible)
            if gap is None:
                break
            low, high = gap
            # From the cursor on there is only what was so when the engine was opened: what
            # undecided transactions hold, and what was tried before.
            if not holds.is_free_from(low):
                inside, following = holds.find(low), holds.find_next(low)
                if inside is not None:
                    start = inside.end
                    continue
                if following is not None:
                    high = min(high, following.first)
            if low < self.redeliveries.end:
                waiting = self.redeliveries.within(low, high)
                if waiting and waiting[0].first <= low:
                    start = waiting[0].end
                    continue
                if waiting:
                    high = waiting[0].first
            return low, high
        return None

    def next_new_range(self, visible: int, first: int, limit: int) -> tuple[int, int] | None:
        """Return the next at most `limit` offsets that no caller has tried, as one range."""
        found = self._take_new(visible, first, limit)
        return None if found is None else found[:2]

    def by_priority(self, queue: Queue, now: float) -> PriorityOrder:
        """Return the order of a queue whose messages have priorities."""
        order = self._by_priority
        if order is None:
            self._by_priority = order = PriorityOrder(queue, self._cursor, self.free_range)
        while self._unread:
            order.put_back(*self._unread.popitem(0))
        if self.redeliveries:
            self.redeliveries.find_due(now, queue.next)
            while (found := self.redeliveries.take(queue.next, None)) is not None:
                order.put_back(found.first, found.end, found.count, found.behind)
        return order

    def _end_priorities(self) -> None:
        """Go on in the order of offsets: the group keeps the order of each key now."""
        assert self._by_priority is not None
        returned, self._by_priority = self._by_priority.take_back(), None
        for first, end, count in returned:
            if count:
                self.redeliveries.add(first, end, count, 0.0)
            else:
                self._unread[first] = max(end, self._unread.get(first, 0))

    def free_range(self, first: int, end: int) -> tuple[int, int] | None:
        """Return the first range between two offsets that is neither acked, nor held, nor waits to
        be due.
        """
        holds, redeliveries = self._holds, self.redeliveries
        while (gap := self._acked.gap(first, end)) is not None:
            low, high = gap
            inside, following = holds.find(low), holds.find_next(low)
            if inside is not None:
                first = inside.end
                continue
            if following is not None:
                high = min(high, following.first)
            waiting = redeliveries.within(low, high) if low < redeliveries.end else []
            if waiting and waiting[0].first <= low:
                first = waiting[0].end
                continue
            return low, min(high, waiting[0].first) if waiting else high
        return None

    def hold(self, first: int, end: int, owner: object, deadline: float, count: int = 0) -> None:
        """Hold a range that has no owner, until `deadline`. It was tried `count` times."""
        if deadline < self.earliest_deadline:
            self.earliest_deadline = deadline
        self._holds.add(Hold(first, end, owner, deadline, count))

    def count_try(self, first: int, end: int) -> int:
        """Note that a held range is tried once more. Return how often it was, by now."""
        hold = self._split(first, end)
        assert hold is not None, "the range is not held"
        hold.count += 1
        return hold.count

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
        pieces = self._pieces(first, end)
        if any(not self.is_held_by(low, high, FORMER) for low, high in pieces):
            return False
        tried = self.redeliveries.remove(first, end)
        for low, high in pieces:
            hold = self._split(low, high)
            assert hold is not None
            tried.append((low, high, hold.count))
            self._holds.remove(low)
        unread = self._unread
        for start, stop in [*unread.items()]:
            if start < end and first < stop:
                del unread[start]
                if start < first:
                    unread[start] = first
                if end < stop:
                    unread[end] = stop
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
        start = self._cursor
        later = [each for each in self.redeliveries.within(start, upto) if each.due > now]
        waits = [(each.first, each.end) for each in later]
        for low, high in self._acked.gaps(start, max(start, upto)):
            held = [each for each in waits if low < each[1] and each[0] < high]
            for first, end in [*sorted([*held, *self._pieces(low, high)]), (high, high)]:
                self._hold_former(low, min(first, high), deadline)
                low = max(low, end)
        self._cursor = max(start, upto)

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
        """Return whether the ack of `offset` is durable."""
        return offset in self._acked

    def unknown(self, end: int) -> list[tuple[int, int]]:
        """Return what is held below `end` and was never looked at by the order of keys."""
        assert self.order is not None
        known = [(hold.first, hold.end) for hold in self._holds.find_all(0, end)]
        known += [(each.first, each.end) for each in self.redeliveries.within(0, end)]
        return [(first, min(last, end)) for first, last in known if first not in self.order]

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
                holds.add(Hold(low, high, hold.owner, hold.deadline, hold.count))
        return holds.by_first[first]

    # --- ending holds ---------------------------------------------------------------------------

    def end_all(self) -> None:
        """End every hold: the group goes on elsewhere."""
        for first in [*self._holds.by_first]:
            self._holds.remove(first)
        self._unread.clear()
        self.redeliveries.clear()

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

    def give_back(self, first: int, end: int, due: float = 0.0, count: int | None = None) -> None:
        """End the hold of this range, and hand it out again: what was not tried at the next poll
        of the group, the rest from the time `due` on. `count` overrides how often it was tried.
        """
        self._ready.add(self._number)
        hold = self._split(first, end)
        if hold is not None:
            self._holds.remove(first)
            if count is not None or hold.count:
                times = hold.count if count is None else count
                self.redeliveries.add(first, end, times, due)
            else:
                self._unread[first] = max(end, self._unread.get(first, 0))
            if self.order is not None and hold.owner is not LATER:
                self._take_later(first, end)

    def _take_later(self, first: int, end: int) -> None:
        """Take from its claim what must not be acked before the messages that are given back."""
        assert self.order is not None
        for offset in range(first, end):
            for later in self.order.after(offset):
                hold = None if later < end else self._holds.find(later)
                if hold is not None and isinstance(hold.owner, Claim):
                    self.transfer(later, later + 1, hold.owner, LATER)

    def give_back_all(self, first: int, end: int) -> None:
        """Redeliver everything that any owner holds in the range."""
        for low, high in reversed(self._pieces(first, end)):
            self.give_back(low, high)

    def _pieces(self, first: int, end: int) -> list[tuple[int, int]]:
        """Return the parts of the range that are held, one for each hold."""
        before = self._holds.find(first)
        holds = self._holds.find_all(first if before is None else before.first, end)
        pieces = [(max(hold.first, first), min(hold.end, end)) for hold in holds]
        return [(low, high) for low, high in pieces if low < high]

    def give_back_of(self, member: object) -> None:
        """Redeliver all that `member` holds when it leaves the group."""
        for hold in _last_first(self._holds.by_first.values()):
            if isinstance(hold.owner, Claim) and hold.owner.member is member:
                self.give_back(hold.first, hold.end)

    def in_hand_of(self, member: object, now: float) -> tuple[int, float]:
        """Return how many messages `member` has, and when the first of its leases ends."""
        held = [
            hold
            for hold in self._holds.by_first.values()
            if isinstance(hold.owner, Claim) and hold.owner.member is member and hold.deadline > now
        ]
        count = sum(hold.end - hold.first for hold in held)
        return count, min((hold.deadline for hold in held), default=math.inf)

    def extend(self, first: int, end: int, deadline: float) -> None:
        """Let the hold of a range that is held end at `deadline`."""
        hold = self._split(first, end)
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
        """Return whether a transaction, or an ack on its way to the disk, holds anything."""
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
