"""The groups of an engine: what each holds of each queue. Guarded by the engine's lock."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable

from fmq.consume.holds import Claim, QueueHolds
from fmq.consume.ready_queues import ReadyQueues
from fmq.store.kinds import AckRange
from fmq.tx.ledger import GroupKey, Ledger, Queue

Topics = tuple[str, ...]


class Groups:
    """The holds of all groups, begun from the ledger and changed by every ack that is applied."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._holds: dict[GroupKey, QueueHolds] = {}
        self._ready: dict[tuple[str, str], ReadyQueues] = {}  # by group and topic
        self._former: Callable[[GroupKey], int] | None = None
        self._former_until = 0.0
        for entry in ledger.undecided.values():
            # What an undecided transaction acks stays held until it is decided.
            for ack in entry.prepare.acks:
                self._holds_of(ack.group, ack.topic, ack.queue).reserve(ack.first, ack.end, entry)

    def _holds_of(self, group: str, topic: str, queue: int) -> QueueHolds:
        """Return the holds in one queue, made now if the group had none there."""
        key = group, topic, queue
        holds = self._holds.get(key)
        if holds is None:
            ready = self._ready_of(group, topic)
            holds = self._holds[key] = QueueHolds(self._ledger.acked_of(*key), ready, queue)
            known = self._ledger.queue(topic, queue)
            if self._former is not None and known is not None:
                holds.hold_former(min(self._former(key), known.next), self._former_until)
        return holds

    def hold_former(self, upto: Callable[[GroupKey], int], until: float) -> None:
        """Hold what was handed out before, `upto` an offset of each queue, for those who have it.

        They claim it again, or others get it at the time `until`.
        """
        self._former, self._former_until = upto, until

    def _ready_of(self, group: str, topic: str) -> ReadyQueues:
        ready = self._ready.get((group, topic))
        if ready is None:
            known = self._ledger.topics.get(topic)
            ready = ReadyQueues(0 if known is None else len(known.queues))
            self._ready[group, topic] = ready
        return ready

    # --- called when an append is applied -------------------------------------------------------

    def holding(self) -> set[tuple[str, str]]:
        """Return each group and topic with a hold."""
        return {key[:2] for key, holds in self._holds.items() if holds.is_holding}

    def end_holds(self, ack: AckRange) -> None:
        """End the holds of a range that is acked."""
        holds = self._holds.get((ack.group, ack.topic, ack.queue))
        if holds is not None:
            holds.end_acked(ack.first, ack.end)

    def give_back(self, ack: AckRange) -> None:
        """Redeliver a range that a rolled-back transaction would have acked."""
        self._holds_of(ack.group, ack.topic, ack.queue).give_back_all(ack.first, ack.end)
        self._ledger.arrived.add(ack.topic)

    # --- called by consumers --------------------------------------------------------------------

    def claim(
        self,
        group: str,
        topics: Topics,
        turn: int,
        limit: int,
        member: object,
        now: float,
        deadline: float,
    ) -> Claim | None:
        """Hold up to `limit` messages of one queue for `member` until `deadline`.

        The search begins with queue number `turn` of all queues of `topics`, so that no queue
        starves. Leases that have ended by `now` are given back first.
        """
        known = [topic for name in topics if (topic := self._ledger.topics.get(name)) is not None]
        start = turn % (sum([len(topic.queues) for topic in known]) or 1)
        first = 0
        while first < len(known) and start >= len(known[first].queues):
            start -= len(known[first].queues)
            first += 1
        for topic in (*known[first:], *known[:first]):
            ready = self._ready_of(group, topic.name)
            ready.expire(now)
            i = bisect_left(ready.numbers, start)
            start = 0  # the other topics begin with their first queue
            for _ in range(len(ready.numbers)):
                i = 0 if i >= len(ready.numbers) else i
                queue = topic.queues[ready.numbers[i]]
                holds = self._holds_of(group, queue.topic, queue.number)
                if now >= holds.earliest_deadline:
                    holds.expire(now)
                found = holds.next_range(queue.next, queue.first, limit)
                if found is not None:
                    claim = Claim(member, queue, holds, *found)
                    holds.hold(claim.first, claim.end, claim, deadline)
                    return claim
                if ready.add not in queue.idle:
                    queue.idle.append(ready.add)
                ready.remove_idle(i, holds.earliest_deadline)
        return None

    def claim_again(
        self, group: str, queue: Queue, first: int, end: int, member: object, deadline: float
    ) -> list[Claim]:
        """Claim a range that `member` has had before: what is neither acked nor another's."""
        holds = self._holds_of(group, queue.topic, queue.number)
        claims = [Claim(member, queue, holds, *part) for part in holds.unacked(first, end)]
        return [each for each in claims if holds.hold_again(each.first, each.end, each, deadline)]

    def next_lease_end(self, group: str, topics: Topics) -> float:
        """Return when the next lease in these topics ends, or an earlier time.

        Call it only after a claim that has found nothing, because then every queue is idle.
        """
        ready = (self._ready.get((group, name)) for name in topics)
        return min((each.next_lease_end() for each in ready if each is not None), default=math.inf)

    def has_unleased(self, group: str, topics: Topics) -> bool:
        """Return whether a transaction, or an ack on its way, holds a message of these topics."""
        for name in topics:
            ready = self._ready.get((group, name))
            unleased = set() if ready is None else ready.unleased
            for holds in [*unleased]:
                if holds.has_unleased():
                    return True
                unleased.discard(holds)
        return False

    def leave(self, group: str, topics: Topics, member: object) -> None:
        """Redeliver all that `member` holds when it leaves `group`."""
        for name in topics:
            topic = self._ledger.topics.get(name)
            for queue in () if topic is None else topic.queues:
                holds = self._holds.get((group, name, queue.number))
                if holds is not None:  # None: the group never polled this queue
                    holds.give_back_of(member)
