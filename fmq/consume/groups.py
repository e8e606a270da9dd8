"""The groups of an engine: for each, what is held of each queue. Guarded by the engine's lock."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator

from fmq.consume.holds import QueueHolds
from fmq.consume.ranges import Claim, Hold
from fmq.consume.ready_queues import ReadyQueues
from fmq.store.kinds import AckRange
from fmq.tx.ledger import GroupKey, Ledger, Queue


class Groups:
    """All groups; made from what the journal says, and told of every ack that is applied."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._queues: dict[GroupKey, QueueHolds] = {}
        self._ready: dict[tuple[str, str], ReadyQueues] = {}  # by group and topic
        ledger.on_ack = self._acked
        ledger.on_free = self._freed
        ledger.holding = self._holding
        for entry in ledger.undecided.values():
            # What an undecided transaction acks stays held until it is decided.
            for ack in entry.prepare.acks:
                self._of(ack.group, ack.topic, ack.queue).reserve(ack.first, ack.end, entry)

    def _of(self, group: str, topic: str, queue: int) -> QueueHolds:
        key = group, topic, queue
        holds = self._queues.get(key)
        if holds is None:
            ready = self._ready_of(group, topic)
            holds = self._queues[key] = QueueHolds(self._ledger.acked_of(*key), ready, queue)
        return holds

    def _ready_of(self, group: str, topic: str) -> ReadyQueues:
        ready = self._ready.get((group, topic))
        if ready is None:
            known = self._ledger.topics.get(topic)
            ready = ReadyQueues(0 if known is None else len(known.queues))
            self._ready[group, topic] = ready
        return ready

    def _holding(self) -> set[tuple[str, str]]:
        """Which groups have deliveries in hand, and of which topics."""
        return {key[:2] for key, holds in self._queues.items() if holds.is_holding}

    def _acked(self, ack: AckRange) -> None:
        holds = self._queues.get((ack.group, ack.topic, ack.queue))
        if holds is not None:
            holds.done(ack.first, ack.end)

    def _freed(self, ack: AckRange) -> None:
        """What a transaction that was rolled back would have acked comes again."""
        self._of(ack.group, ack.topic, ack.queue).free(ack.first, ack.end)
        self._ledger.arrived.add(ack.topic)

    def claim(
        self,
        group: str,
        topics: tuple[str, ...],
        turn: int,
        limit: int,
        owner: Claim,
        now: float,
        deadline: float,
    ) -> tuple[Queue, QueueHolds, Hold] | None:
        """Up to `limit` messages of one queue for `owner`, beginning with queue number `turn`;
        what was held until `now` may be among them.
        """
        known = [topic for name in topics if (topic := self._ledger.topics.get(name)) is not None]
        start = turn % (sum(len(topic.queues) for topic in known) or 1)
        first = 0
        while first < len(known) and start >= len(known[first].queues):
            start -= len(known[first].queues)
            first += 1
        for topic in (*known[first:], *known[:first]):
            ready = self._ready_of(group, topic.name)
            ready.expire(now)
            i = bisect_left(ready.numbers, start)
            start = 0  # of the topics that follow
            for _ in range(len(ready.numbers)):
                i = 0 if i >= len(ready.numbers) else i
                queue = topic.queues[ready.numbers[i]]
                holds = self._of(group, queue.topic, queue.number)
                if now >= holds.earliest:
                    holds.expire(now)
                hold = holds.claim(queue.next, queue.first, limit, owner, deadline)
                if hold is not None:
                    return queue, holds, hold
                if ready.add not in queue.idle:
                    queue.idle.append(ready.add)
                ready.idle(i, holds.earliest)
        return None

    def _queues_of(self, topics: tuple[str, ...]) -> list[Queue]:
        known = self._ledger.topics
        if len(topics) == 1:
            topic = known.get(topics[0])
            return [] if topic is None else topic.queues
        return [queue for name in topics if name in known for queue in known[name].queues]

    def _known(self, group: str, topics: tuple[str, ...]) -> Iterator[QueueHolds]:
        """What `group` holds of those queues that it has taken from: looking makes no group."""
        for queue in self._queues_of(topics):
            holds = self._queues.get((group, queue.topic, queue.number))
            if holds is not None:
                yield holds

    def next_deadline(self, group: str, topics: tuple[str, ...]) -> float:
        """A time before which no lease in these topics ends, once a claim has found nothing."""
        ready = (self._ready.get((group, name)) for name in topics)
        return min((each.next_due() for each in ready if each is not None), default=math.inf)

    def await_transactions(self, group: str, topics: tuple[str, ...]) -> bool:
        """Whether something of these topics is held as long as a transaction needs."""
        for name in topics:
            ready = self._ready.get((group, name))
            reserved = set() if ready is None else ready.reserved
            for holds in [*reserved]:
                if holds.await_transactions():
                    return True
                reserved.discard(holds)
        return False

    def release(self, group: str, topics: tuple[str, ...], member: object) -> None:
        """Redeliver all that `member`, which leaves `group`, holds."""
        for holds in self._known(group, topics):
            holds.release(member)
