"""What a poll is handed next: from which topic, and from which of its queues.

Each poll begins at another queue, so that no queue starves. It looks only at queues that may have
something (`GroupHolds.ready`), and takes from the first that has. How it takes is up to the group
and the topic:

    by offsets       QueueHolds.next_range
    in order         the group keeps the order of keys (claims/ordered_claims.py)
    by priority      the topic has priorities (priority_claims.py)

Something may have to be read first, keys or priorities. The poll reads it without the lock, and
claims again.

Guarded by the engine's lock.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from functools import partial

from fmq.basics.tuples import tuple_maker
from fmq.consume.claims.by_priority import SpanWanted
from fmq.consume.claims.claim import Claim, ClaimAsked
from fmq.consume.claims.holds import QueueHolds
from fmq.consume.claims.membership import GroupRoom, Member
from fmq.consume.claims.ordered_claims import (
    LOOKED_AT_ONCE,
    InOrder,
    LookWanted,
    next_in_order,
    order_of,
)
from fmq.consume.claims.poll import Poll
from fmq.consume.claims.ready_queues import ReadyQueues
from fmq.consume.groups.group_holds import GroupHolds, Topics, looking
from fmq.consume.groups.priority_claims import Candidate, take_best
from fmq.consume.groups.sieve import SIFTED_AT_ONCE
from fmq.consume.limits.by_key import next_by_key, unknown_in_hand
from fmq.consume.limits.key_rooms import KeyRooms
from fmq.store.bytes.internal import is_internal
from fmq.tx.ledger.queues import Queue, Topic

made_asked = tuple_maker(ClaimAsked)
Take = Callable[[ClaimAsked, Queue, QueueHolds], Claim | LookWanted | None]


class GroupClaims:
    """Claims messages for the members of all groups."""

    def __init__(self, holds: GroupHolds) -> None:
        self._all_holds = holds
        self._holds_of, self._by_queue = holds.of, holds.by_queue
        self._ready_of, self._ready = holds.ready_of, holds.ready
        self._ledger = holds.ledger
        self._clock = holds.clock
        # After this nothing is handed out: see `Groups.hand_out_until`.
        self.hands_out_until = math.inf
        # By group and topic: how many messages were handed out since the oldest one was chosen.
        self._handed_out: dict[tuple[str, str], int] = {}

    def claim(
        self, room: GroupRoom, member: Member, poll: Poll, now: float, deadline: float
    ) -> Claim | SpanWanted | LookWanted | None:
        """Hold messages of one queue for `member` of `room` until `deadline`, as `poll` asks.

        Return a SpanWanted or LookWanted if something has to be read first; None if there is
        nothing. Leases that have ended by `now` are given back first.
        """
        ledger, group, names = self._ledger, room.group, member.topics
        owner = None if room.strategy is None else member
        if now > self.hands_out_until:
            return None
        if ledger.pauses:
            names = ledger.unpaused(group, names)
        limit = poll.limit
        take: Take = self._by_offset
        if ledger.limits:
            limits = self._all_holds.limits
            limit = poll.most = limits.left(group, limit, now)
            if not limit:
                return None
            if limits.is_by_key(group):
                rooms = self._rooms(group, now)
                if isinstance(rooms, LookWanted):
                    return rooms
                take = partial(self._by_key, rooms)
        if ledger.again:
            names = self._all_holds.with_replays(group, names)
        # The search begins at this queue, counted over the queues of all topics.
        member.turn = start = member.turn + 1
        if len(names) > 1:
            names, start = self._in_turn(names, start)
        found: Claim | SpanWanted | LookWanted | None
        for name in names:
            topic = ledger.topics.get(name)
            if topic is None:
                continue
            looks = owner if owner is None else looking(name, owner)
            ready = self._ready.get((group, name, looks)) or self._ready_of(group, name, looks)
            if ready.lease_ends:
                ready.expire(now)
            if ready.numbers:
                text = ledger.subscriptions[group, name].filter
                in_one_piece = poll.in_one_piece
                asked = made_asked((group, member, text, limit, in_one_piece, now, deadline))
                i = bisect_left(ready.numbers, start % len(topic.queues))
                if room.is_ordered:
                    found = self._first(self._in_order, asked, topic, ready, i)
                elif topic.has_priorities and take == self._by_offset:
                    found = self._by_priority(asked, topic, ready, i)
                else:
                    found = self._first(take, asked, topic, ready, i)
                if found is not None:
                    return found
            start = 0  # the search in the other topics begins with their first queue
        return None

    def _in_turn(self, names: Topics, turn: int) -> tuple[Topics, int]:
        """Find queue number `turn`, counted over the queues of all topics in a circle. Return the
        topics, rotated so that the topic of this queue comes first, and the number of the queue in
        its topic.
        """
        queues_of = self._all_holds.queues_of
        known = [name for name in names if name in self._ledger.topics]
        start = turn % (sum(map(queues_of, known)) or 1)
        for first, name in enumerate(known):
            if start < queues_of(name):
                return (*known[first:], *known[:first]), start
            start -= queues_of(name)
        return (), 0

    def _first(
        self, take: Take, asked: ClaimAsked, topic: Topic, ready: ReadyQueues, i: int
    ) -> Claim | LookWanted | None:
        """Return what `take` takes from the first queue that has something. The search begins with
        `ready.numbers[i]`, and goes in a circle.
        """
        now = asked.now
        while ready.numbers:  # a queue that has nothing is removed from `ready`
            i = 0 if i >= len(ready.numbers) else i
            queue = topic.queues[ready.numbers[i]]
            key = asked.group, topic.name, queue.number
            holds = self._by_queue.get(key) or self._holds_of(*key)
            if now >= holds.earliest_deadline:
                holds.expire(now)
            found = take(asked, queue, holds)
            if found is not None:
                return found
            _note_idle(ready, i, queue, holds)
        return None

    def _by_offset(self, asked: ClaimAsked, queue: Queue, holds: QueueHolds) -> Claim | None:
        """Claim the next range of a queue."""
        _, member, text, limit, _, now, deadline = asked
        wanted = max(limit, SIFTED_AT_ONCE) if text else limit
        found = holds.next_range(queue.next, queue.first, wanted, now)
        if found is None:
            return None
        first, end, count = found
        claim = Claim(member, queue, holds, first, end, text, count, now)
        holds.hold(first, end, claim, deadline, count)
        if queue.spans is not None:
            self._claim_expired(claim, deadline)
        return claim

    def _claim_expired(self, claim: Claim, deadline: float) -> None:
        """Add more messages to `claim` if some of it may have expired, so that many are passed
        over at once.
        """
        queue, holds = claim.queue, claim.holds
        now_us = self._clock.time_us()
        if not claim.may_have_expired(now_us):
            return
        claim.now_us = now_us
        more = SIFTED_AT_ONCE - (claim.end - claim.first)
        while more > 0 and not claim.count:
            found = holds.next_new_range(queue.next, queue.first, more)
            if found is None:
                break
            holds.hold(*found, claim, deadline)
            claim.add(*found)
            more -= found[1] - found[0]

    def _in_order(
        self, asked: ClaimAsked, queue: Queue, holds: QueueHolds
    ) -> Claim | LookWanted | None:
        """Claim messages of a queue whose keys are free, or say what has to be read first."""
        _, _, text, limit, in_one_piece, now, _ = asked
        now_us, spans = self._clock.time_us(), queue.spans
        if spans is not None and spans.may_have_expired(queue.first, queue.next, now_us):
            limit = max(limit, LOOKED_AT_ONCE)
        found = next_in_order(holds, queue, text, limit, now, in_one_piece=in_one_piece)
        if found is None or isinstance(found, LookWanted):
            return found
        return self._claim_these(asked, queue, holds, found)

    def _claim_these(
        self, asked: ClaimAsked, queue: Queue, holds: QueueHolds, found: InOrder
    ) -> Claim:
        """Claim messages that were chosen by their keys."""
        _, member, _, _, _, now, deadline = asked
        now_us = self._clock.time_us()
        (first, end), *rest = found.ranges
        claim = Claim(member, queue, holds, first, end, found.filter, found.tries, now)
        for each in rest:
            claim.add(*each)
        for each in found.ranges:
            holds.hold(*each, claim, deadline, found.tries)
        if claim.may_have_expired(now_us):
            claim.now_us = now_us
        return claim

    def _rooms(self, group: str, now: float) -> KeyRooms | LookWanted:
        """Return how many messages of each key `group` may be handed, or what has to be read first
        to know that.
        """
        for queue, holds in self._all_holds.of_group(group):
            text = self._ledger.subscriptions[group, queue.topic].filter
            wanted = unknown_in_hand(holds, queue, text)
            if wanted is not None:
                return wanted
        return self._all_holds.limits.rooms(group, now)

    def _by_key(
        self, rooms: KeyRooms, asked: ClaimAsked, queue: Queue, holds: QueueHolds
    ) -> Claim | LookWanted | None:
        """Claim messages of a queue by the turns of its keys, or say what has to be read first."""
        limit = 1 if asked.in_one_piece else asked.limit
        found = next_by_key(holds, queue, asked.filter, limit, asked.now, rooms)
        if found is None or isinstance(found, LookWanted):
            return found
        return self._claim_these(asked, queue, holds, found)

    def _by_priority(
        self, asked: ClaimAsked, topic: Topic, ready: ReadyQueues, i: int
    ) -> Claim | SpanWanted | None:
        """Claim from the queue with a message of the highest priority. If it is the turn of the
        oldest message of the next queue, claim that.
        """
        found: list[Candidate] = []
        for number in (*ready.numbers[i:], *ready.numbers[:i]):
            queue = topic.queues[number]
            self._ledger.spans_of(queue)
            holds = self._holds_of(asked.group, topic.name, number)
            if asked.now >= holds.earliest_deadline:
                holds.expire(asked.now)
            order = holds.by_priority(queue, asked.now)
            best = order.best(1)
            if isinstance(best, SpanWanted):
                return best
            if best is not None:
                found.append(Candidate(best.level, queue, holds, order))
            else:
                _note_idle(ready, bisect_left(ready.numbers, number), queue, holds)
        if not found:
            return None
        key, now_us = (asked.group, topic.name), self._clock.time_us()
        handed_out = self._handed_out.get(key, 0)
        claim, self._handed_out[key] = take_best(asked, found, handed_out, now_us)
        return claim

    def claim_again(
        self, group: str, queue: Queue, first: int, end: int, member: Member, deadline: float
    ) -> list[Claim]:
        """Claim the parts of a range that are neither acked nor held by another member. `member`
        has had them before.
        """
        room, topic = self._all_holds.rooms[group], queue.topic
        if (
            room.strategy is not None
            and not is_internal(topic)
            and self._all_holds.owner(group, topic, queue.number) is not member
        ):
            return []
        holds = self._holds_of(group, topic, queue.number)
        if room.is_ordered:
            order_of(holds, self._ledger.subscriptions[group, topic].filter)
        # It is not known any more when the member polled these messages.
        now = self._clock.monotonic()
        parts = holds.unacked(first, end)
        claims = [Claim(member, queue, holds, *part, since=now) for part in parts]
        return [each for each in claims if holds.hold_again(each.first, each.end, each, deadline)]

    # --- until when a poll waits ----------------------------------------------------------------

    def next_lease_end(self, group: str, member: Member) -> float:
        """Return a time before which no lease ends in the queues at which `member` looks.

        Call it only after a claim that has found nothing: then every queue is idle.
        """
        ready = self._all_holds.looked_at(group, member)
        return min((each.next_lease_end() for each in ready), default=math.inf)

    def has_unleased(self, group: str, member: Member) -> bool:
        """Return whether the queues at which `member` looks have a hold without a deadline, such as
        that of a transaction.
        """
        for ready in self._all_holds.looked_at(group, member):
            unleased = ready.unleased
            for holds in [*unleased]:
                if holds.has_unleased():
                    return True
                unleased.discard(holds)
        return False


def _note_idle(ready: ReadyQueues, i: int, queue: Queue, holds: QueueHolds) -> None:
    """Let polls look at the queue `ready.numbers[i]` again only when it may have something: a new
    message, one that is due, or one whose lease has ended.
    """
    if ready.add not in queue.idle:
        queue.idle.append(ready.add)
    ready.remove_idle(i, min(holds.earliest_deadline, holds.redeliveries.next_due()))
