"""The holds: what a group has handed out of one queue and not acked yet, and what comes next.

For a group, each message of a queue is in one of these states:

    untried      no member has tried it (untried.py)
    held         an owner has it: the claim of a consumer until its lease ends, or a transaction;
                 or FORMER, for clients of a server that was killed; or LATER, until an earlier
                 message of its key is acked
    given back   it was tried and waits for its next attempt (redelivery.py)
    acked        the group is done with it (tx/ledger/acks.py)

    untried --poll--> held --ack--> acked
                       |  ^
          lease ends,  |  | poll, once it is due
          released     v  |
                     given back

An example: offsets 0 to 99 are in the queue, and a poll takes 10. One hold covers [0, 10) until its
lease ends. The ack of offset 3 cuts it in three: the range [3, 4) is acked, [0, 3) and [4, 10) stay
held. When the lease ends, both are given back, each with its number of attempts. The next poll
takes [0, 3). It is one range, and the acked offset 3 is not handed out again.

Everything is kept as ranges, so a thousand messages that are delivered at once cost as much as one.
Only the acks and the attempts are in the journal. The holds are in memory and end with the engine.

If the group keeps the order of keys, `order` (key_order.py) says which message is next; if the
queue has priorities, `by_priority` does. Guarded by the engine's lock.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from heapq import merge
from typing import Protocol

from fmq.consume.claims.backoff import DEFAULT
from fmq.consume.claims.by_priority import PriorityOrder
from fmq.consume.claims.hold_map import Hold, HoldMap, MemberOwner
from fmq.consume.claims.key_order import KeyOrder
from fmq.consume.claims.key_turns import KeyTurns
from fmq.consume.claims.ready_queues import ReadyQueues
from fmq.consume.claims.redelivery import GivenBack, Redeliveries
from fmq.consume.claims.untried import Untried
from fmq.tx.ledger.acks import AckSet
from fmq.tx.ledger.queues import Queue

# The owner of messages that wait until an earlier message of their key is acked.
LATER = object()
# The owner of messages that clients may still have from a server that was killed.
FORMER = object()


class Limiter(Protocol):
    """The limiter of the group (limits/limiter.py), as far as the holds of a queue call it."""

    def freed(self) -> None:
        """Note that a hold has ended."""

    def handed(self, now: float, holds: QueueHolds, ranges: Iterable[tuple[int, int]]) -> None:
        """Note that the messages of `ranges` are handed to a program."""

    def drop(self, holds: QueueHolds) -> None:
        """Stop counting these holds."""


class QueueHolds:
    """The holds of one group in one queue, and the choice of what it hands out next."""

    def __init__(self, acked: AckSet, ready: ReadyQueues | None = None, number: int = 0) -> None:
        """`number` is the number of the queue, which is added to `ready` when a hold is given
        back.
        """
        self._ready = ReadyQueues(range(1)) if ready is None else ready
        self._number = number
        self._acked = acked
        self._holds = HoldMap()
        self.redeliveries = Redeliveries()
        self._untried = Untried(acked, self._holds, self.redeliveries)
        self.earliest_deadline = math.inf  # no lease of this queue ends before this time
        self.order: KeyOrder | None = None  # made only if the group keeps the order of each key
        # True once the group was moved. From then on the group uses another object.
        self.has_ended = False
        self._by_priority: PriorityOrder | None = None
        self.limiter: Limiter | None = None  # None if the group has no limit

    def belong_to(self, ready: ReadyQueues) -> None:
        """Let polls find the queue by `ready`."""
        self._ready = ready
        if self._holds.has_unleased():
            ready.unleased.add(self._holds)

    # --- handing out ----------------------------------------------------------------------------

    def next_range(
        self, visible: int, first: int, limit: int, now: float = 0.0
    ) -> tuple[int, int, int] | None:
        """Return the next range to hand out, of at most `limit` offsets in [first, visible), and
        how often its messages were tried before.

        New messages and messages that were given back take turns (redelivery.py). The caller adds a
        hold for the range.
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
        """Return the next at most `limit` offsets that no member has tried, as one range."""
        found = self._untried.take(visible, first, limit)
        return None if found is None else found[:2]

    def by_priority(self, queue: Queue, now: float) -> PriorityOrder:
        """Return the PriorityOrder of this queue; make it if there is none. Move to it the messages
        that were given back, and those that are due for redelivery.
        """
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
        """Keep the order of each key from now on, and return it."""
        if self.order is None:
            if self._by_priority is not None:
                self._end_priorities()
            # KeyOrder reads these messages again, with all others.
            self._untried.pop_returned()
            self.order = KeyOrder(self._acked.floor, filter_text)
        return self.order

    def begin_turns(self, filter_text: str) -> None:
        """Let the keys take turns from now on."""
        if self.order is not None:
            self.end_order()
        if self._by_priority is not None:
            self._end_priorities()
        self._untried.pop_returned()
        self.order = KeyTurns(self._acked.floor, filter_text)

    def end_turns(self) -> None:
        """Let the keys take turns no longer, if they did."""
        if isinstance(self.order, KeyTurns):
            self.end_order()
            self.look_again()

    def look_again(self) -> None:
        """Let the next poll look at this queue."""
        self._ready.add(self._number)

    def key_of(self, offset: int) -> str | None:
        """Return the key of a message in hand, if the keys take turns."""
        return self.order.key_of(offset) if isinstance(self.order, KeyTurns) else None

    def end_order(self) -> None:
        """Hand out by offsets from now on: the group does not keep the order of keys any more."""
        for offset, count in self.order.tries.items() if isinstance(self.order, KeyTurns) else ():
            self.redeliveries.add(offset, offset + 1, count, -math.inf)
        self.order = None
        self._untried.begin_again()
        for hold in [*self._holds.by_first.values()]:
            if hold.owner is LATER:
                self.give_back(hold.first, hold.end)

    def _end_priorities(self) -> None:
        """Hand out without a look at priorities from now on."""
        assert self._by_priority is not None
        returned, self._by_priority = self._by_priority.take_back(), None
        for first, end, count in returned:
            if count:
                self.redeliveries.add(first, end, count, 0.0)

    @property
    def floor(self) -> int:
        """The offset below which everything is acked."""
        return self._acked.floor

    def hold(self, first: int, end: int, owner: object, deadline: float, count: int = 0) -> None:
        """Hold a range that has no owner, until `deadline`. Its messages were tried `count`
        times.
        """
        if deadline < self.earliest_deadline:
            self.earliest_deadline = deadline
        self._holds.add(Hold(first, end, owner, deadline, count))

    def count_tries(self, ranges: list[tuple[int, int]], more: int = 1) -> None:
        """Add `more` to the number of attempts of the messages in held ranges."""
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

    def tries_of(self, offset: int) -> int:
        """Return how often a message was tried that is held or was given back; 0 for others."""
        found = (each.count for each in self.all_from(0) if each.first <= offset < each.end)
        return next(found, 0)

    def tried_before(self, first: int, end: int, count: int, due: float) -> None:
        """Let a range be handed out from the time `due` on. It was tried before the engine was
        opened.
        """
        for low, high in self._acked.gaps(first, end):
            self.redeliveries.add(low, high, count, due)

    def hold_again(self, first: int, end: int, owner: object, deadline: float) -> bool:
        """Let `owner` hold a range again that it has held before and that is not acked.

        Return False, and change nothing, if a part of it has an owner other than FORMER.
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
            tried += self.order.take_these(first, end)
        at = first
        for low, high, count in (*sorted(tried), (end, end, 0)):
            if at < low:
                self.hold(at, low, owner, deadline)
            if low < high:
                self.hold(low, high, owner, deadline, count)
            at = high
        return True

    def hold_former(self, upto: int, deadline: float, waits: list[tuple[int, int]]) -> None:
        """Hold everything that is free below `upto` for FORMER, until `deadline`. Leave out the
        ranges `waits`: they were given back and are not due, so no client has them.
        """
        start = self._untried.cursor
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
        """Return the offsets of a range that are held or wait for redelivery."""
        ranges = self._holds.pieces(first, end)
        ranges += [(each.first, each.end) for each in self.redeliveries.within(first, end)]
        return {each for low, high in ranges for each in range(max(low, first), min(high, end))}

    def hold_later(self, offset: int, count: int) -> None:
        """Hold a message that was tried until the earlier messages of its key are acked."""
        self._ready.unleased.add(self._holds)
        self._holds.add(Hold(offset, offset + 1, LATER, math.inf, count))

    def unacked(self, first: int, end: int) -> list[tuple[int, int]]:
        """Return the parts of a range that are not acked."""
        return [*self._acked.gaps(first, end)]

    def reserve(self, first: int, end: int, owner: object) -> None:
        """Hold a range for a transaction that was undecided when the engine was opened."""
        self._ready.unleased.add(self._holds)
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

        Return False, and change nothing, if `owner` does not hold all of the range.
        """
        hold = self._holds.by_first.get(first)
        if hold is None or hold.end != end:
            if not self.is_held_by(first, end, owner):
                return False
            hold = self._holds.split(first, end)
            assert hold is not None
        if hold.owner is not owner:
            return False
        self._ready.unleased.add(self._holds)
        hold.owner, hold.deadline = heir, math.inf
        return True

    def transfer_back(self, first: int, end: int, owner: object, deadline: float) -> None:
        """Pass a range that is held to `owner`, with a new deadline."""
        hold = self._holds.split(first, end)
        assert hold is not None, "the range is not held"
        if deadline < self.earliest_deadline:
            self.earliest_deadline = deadline
        self._ready.add(self._number)
        hold.owner, hold.deadline = owner, deadline

    # --- ending holds ---------------------------------------------------------------------------

    def end_all(self) -> None:
        """End every hold, because the group was moved."""
        self.has_ended = True
        for first in [*self._holds.by_first]:
            self._holds.remove(first)
        self._untried.pop_returned()
        self.redeliveries.clear()
        if self.limiter is not None:
            self.limiter.drop(self)

    def end_acked(self, first: int, end: int) -> None:
        """End the holds in a range that was acked."""
        exact = self._holds.by_first.get(first)
        if exact is not None and exact.end == end:
            self._holds.remove(first)
        else:
            for low, high in self._holds.pieces(first, end):
                self._holds.split(low, high)
                self._holds.remove(low)

    def hand_on(self, first: int, end: int) -> bool:
        """Let the next messages of these keys go on: the ack of the range is durable. Return
        whether a message can be handed out because of that.
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
        """End the hold of this range, and hand its messages out again: untried ones at the next
        poll of the group, others from the time `due` on. `count` replaces the number of their
        attempts.
        """
        self._ready.add(self._number)
        hold = self._holds.split(first, end)
        if hold is None:
            return
        self._holds.remove(first)
        if self.limiter is not None:
            self.limiter.freed()
        if self.order is not None and hold.owner is not LATER:
            self._take_later(first, end)
        if count is not None or hold.count:
            times = hold.count if count is None else count
            self.redeliveries.add(first, end, times, due)
        elif self.order is None:
            self._untried.put_back(first, end)
        else:
            self._put_back_in_order(first, end)

    def wait_again(self, first: int, end: int, due: float, count: int) -> None:
        """Hand a range that is held, or waits, out again from the time `due` on, and not before."""
        if self._holds.find(first) is not None:
            self.give_back(first, end, due, count)
        else:
            self.redeliveries.remove(first, end)
            self.redeliveries.add(first, end, count, due)
            self._ready.add(self._number)

    def _take_later(self, first: int, end: int) -> None:
        """Take later messages of the same keys from their claims. They must not be acked before the
        messages [first, end), which are given back.
        """
        assert self.order is not None
        for offset in range(first, end):
            for later in reversed(self.order.after(offset)):
                hold = None if later < end else self._holds.find(later)
                if hold is None or not isinstance(hold.owner, MemberOwner):
                    continue
                if hold.count:
                    self.transfer(later, later + 1, hold.owner, LATER)
                else:
                    self._holds.split(later, later + 1)
                    self._holds.remove(later)
                    self._put_back_in_order(later, later + 1)

    def _put_back_in_order(self, first: int, end: int) -> None:
        """Let a range be handed out again. Its messages were not tried."""
        assert self.order is not None
        for offset in range(end - 1, first - 1, -1):
            if self.order.after(offset):
                # Redeliver the message, so that it goes before later messages of its key, which
                # consumers have.
                self.redeliveries.add(offset, offset + 1, 0, 0.0)
            else:
                self.order.put_back(offset, offset + 1)

    def give_back_held(self, first: int, end: int, owner: object) -> None:
        """Give back the parts of the range that `owner` still holds. Where the order of keys is
        kept, it may have lost some of them: later messages of a key that was given back.
        """
        for low, high in reversed(self._holds.pieces(first, end)):
            if self.is_held_by(low, high, owner):
                self.give_back(low, high)

    def give_back_all(self, first: int, end: int) -> None:
        """Give back everything in the range, for all of its owners."""
        for low, high in reversed(self._holds.pieces(first, end)):
            self.give_back(low, high)

    def give_back_of(self, member: object) -> None:
        """Give back what `member` holds, because it leaves the group."""
        for hold in _last_first(self.held_by(member)):
            self.give_back(hold.first, hold.end)

    def all_from(self, offset: int) -> Iterator[Hold | GivenBack]:
        """Yield what is held, and what was given back and is not acked, by its first offset, from
        `offset` on.
        """
        # A skip, or the ack of a transaction, may have acked a part of what waits. The next poll
        # that comes to it passes over that part. Until then nobody is to be shown it.
        by_first = self.redeliveries.by_first
        waits: Iterable[GivenBack] = (
            GivenBack(*gap, each.count, each.due)
            for each in map(by_first.get, by_first.islice(max(by_first.bisect(offset) - 1, 0)))
            for gap in self._acked.gaps(max(each.first, offset), each.end)
        )
        if self._by_priority is not None:
            due = self._by_priority.given_back()
            taken = [GivenBack(*each, 0.0) for each in due if each[0] >= offset]
            waits = merge(waits, taken, key=_first_of)
        return merge(self._holds.all_from(offset), waits, key=_first_of)

    def held(self) -> Iterable[Hold]:
        """Return all holds. They must not change meanwhile."""
        return self._holds.by_first.values()

    def count_held(self) -> int:
        """Return how many messages members and transactions hold."""
        others = LATER, FORMER
        return sum(each.end - each.first for each in self.held() if each.owner not in others)

    def held_by(self, member: object) -> list[Hold]:
        """Return the holds of the claims of `member`."""
        return [
            hold
            for hold in self._holds.by_first.values()
            if isinstance(hold.owner, MemberOwner) and hold.owner.member is member
        ]

    def extend(self, first: int, end: int, deadline: float) -> None:
        """Let the hold of a range end at `deadline`. The range must be held."""
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
            # A message that blocks its handler, or kills the process, waits longer each time.
            retry = hold.owner.member.retry if isinstance(hold.owner, MemberOwner) else DEFAULT
            self.give_back(hold.first, hold.end, hold.deadline + retry.delay(hold.count))
        self.earliest_deadline = self.next_deadline()
        return bool(late)

    def next_deadline(self) -> float:
        """Return when the next lease ends. This looks at every hold."""
        return min((hold.deadline for hold in self._holds.by_first.values()), default=math.inf)

    def _check(self) -> None:
        self._holds._check()
        last = 0
        for first, hold in sorted(self._holds.by_first.items()):
            assert first == hold.first < hold.end, (first, hold.first, hold.end)
            assert first >= last, "two holds overlap"
            last = hold.end


def _first_of(each: Hold | GivenBack) -> int:
    return each.first


def _last_first(holds: Iterable[Hold]) -> list[Hold]:
    """Return the holds from the last one to the first: the order in which to give back many.

    Where the order of keys is kept, giving one back changes later holds of its claim, but no
    earlier ones.
    """
    return sorted(holds, key=lambda hold: hold.first, reverse=True)
