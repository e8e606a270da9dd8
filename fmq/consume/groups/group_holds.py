"""The holds of all groups: which messages of each queue are in hand, and where polls have to look.

For each group and queue there is a QueueHolds, made when it is first needed. For each group and
topic there is a ReadyQueues: one that all members share, or, with a strategy, one for each member.

The ledger calls `end_holds` and `give_back` when an append is applied: so an ack ends its hold when
it is planned, before it is durable. If the write fails, the engine ends, and all holds with it.

Guarded by the engine's lock.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from fmq.basics.clock import Clock
from fmq.consume.claims.backoff import DEFAULT
from fmq.consume.claims.hold_map import Hold
from fmq.consume.claims.holds import QueueHolds
from fmq.consume.claims.membership import GroupRoom, Member
from fmq.consume.claims.ready_queues import ReadyQueues
from fmq.consume.groups.group_limits import GroupLimits
from fmq.store.bytes.internal import is_internal
from fmq.store.bytes.kinds import AckRange
from fmq.tx.ledger.ledger import GroupKey, Ledger
from fmq.tx.ledger.queues import Queue

Topics = tuple[str, ...]


class GroupHolds:
    """What the members of all groups have in hand. At first this is what the ledger says; then each
    applied ack changes it.
    """

    def __init__(self, ledger: Ledger, clock: Clock) -> None:
        self.ledger = ledger
        self.clock = clock
        # The room of each group that has members, by the group's name.
        self.rooms: dict[str, GroupRoom] = {}
        self.by_queue: dict[GroupKey, QueueHolds] = {}
        # By group, topic and owner. The owner is None if all members share the queues.
        self.ready: dict[tuple[str, str, Member | None], ReadyQueues] = {}
        self._former: Callable[[GroupKey], int] | None = None
        self._former_until = 0.0
        # The time of the last record or attempt that the engine found.
        self._found_us = max(ledger.last_us, ledger.tried_us)
        self.limits = GroupLimits(ledger, clock, self._found_us, self._all_of, self.wake)
        for entry in ledger.undecided.values():
            # What an undecided transaction acks stays held until the transaction is decided.
            for ack in entry.prepare.acks:
                self.of(ack.group, ack.topic, ack.queue).reserve(ack.first, ack.end, entry)

    def of(self, group: str, topic: str, queue: int) -> QueueHolds:
        """Return the group's holds in one queue. Make them if there are none."""
        key = group, topic, queue
        holds = self.by_queue.get(key)
        if holds is None:
            ready = self.ready_of(group, topic, self.owner(*key))
            holds = self.by_queue[key] = QueueHolds(self.ledger.acked_of(*key), ready, queue)
            self._load_tried(key, holds)
            known = self.ledger.queue(topic, queue)
            if self._former is not None and known is not None:
                # In the journal, messages that were given back have a due time, and no client has
                # them. Messages that were in hand have no due time, whichever attempt it was.
                tried, now_us = self.ledger.tried.get(key), self.clock.time_us()
                found = () if tried is None else tried.all()
                waits = [(first, end) for first, end, _, due_us in found if due_us > now_us]
                upto = min(self._former(key), known.next)
                holds.hold_former(upto, self._former_until, waits)
            self.limits.made(group, holds)
        return holds

    def _all_of(self, group: str) -> list[QueueHolds]:
        """Return the group's holds in each queue of its topics. Make the holds of a queue that has
        none.
        """
        topics = self.ledger.subscriptions.topics_of(group)
        for name in self.with_replays(group, topics):
            for number in range(self.queues_of(name)):
                self.of(group, name, number)
        return [holds for key, holds in self.by_queue.items() if key[0] == group]

    def _load_tried(self, key: GroupKey, holds: QueueHolds) -> None:
        """Let messages that were tried before the engine was opened, or before a seek, be handed
        out again.
        """
        tried = self.ledger.tried.get(key)
        if tried:
            now, now_us = self.clock.monotonic(), self.clock.time_us()
            for first, end, count, due_us in tried.all():
                if not due_us:
                    # Messages that were in hand when the process was killed wait, too: one of them
                    # may kill its process each time. They were tried no later than the last record
                    # that the engine found.
                    tried_us = min(self._found_us, now_us)
                    due_us = tried_us + round(DEFAULT.delay(count) * 1_000_000)
                wait = max(due_us - now_us, 0) / 1_000_000
                # A message that need not wait is due at once, even for a poll that has begun
                # before.
                holds.tried_before(first, end, count, now + wait if wait else -math.inf)

    def hold_former(self, upto: Callable[[GroupKey], int], until: float) -> None:
        """Hold what was handed out before the engine was opened, for the clients that may still
        have it. `upto` returns for each queue the offset below which messages were handed out.

        The clients claim it again. What they have not claimed by the time `until` is handed to
        others.
        """
        self._former, self._former_until = upto, until

    def of_group(self, group: str) -> list[tuple[Queue, QueueHolds]]:
        """Return each queue in which `group` may have messages in hand or given back, sorted by
        topic and number, with the group's holds in it.
        """
        found = []
        for name in sorted({*self.with_replays(group, self.ledger.subscriptions.topics_of(group))}):
            topic = self.ledger.topics.get(name)
            for queue in () if topic is None else topic.queues:
                key = group, name, queue.number
                holds = self.of(*key) if key in self.ledger.tried else self.by_queue.get(key)
                if holds is not None:
                    found.append((queue, holds))
        return found

    # --- where polls look -----------------------------------------------------------------------

    def queues_of(self, topic: str) -> int:
        """Return how many queues `topic` has; 0 if it does not exist."""
        known = self.ledger.topics.get(topic)
        return 0 if known is None else len(known.queues)

    def owner(self, group: str, topic: str, queue: int) -> Member | None:
        """Return the member that a queue belongs to; None if all members share it."""
        room = self.rooms.get(group)
        owners = () if room is None else room.owners.get(topic, ())
        return owners[queue] if queue < len(owners) else None

    def with_replays(self, group: str, topics: Topics) -> Topics:
        """Return `topics`, and the internal topics with the dead letters that were replayed to
        `group`.
        """
        again = self.ledger.again
        if not again:
            return topics
        return *topics, *(again[group, name] for name in topics if (group, name) in again)

    def ready_of(self, group: str, topic: str, owner: Member | None) -> ReadyQueues:
        """Return the queues at which the polls of `owner` look. If `owner` is None, return the
        queues at which the polls of all members look.
        """
        ready = self.ready.get((group, topic, owner))
        if ready is None:
            ready = ReadyQueues(range(self.queues_of(topic)) if owner is None else (), owner)
            self.ready[group, topic, owner] = ready
        return ready

    def looked_at(self, group: str, member: Member) -> list[ReadyQueues]:
        """Return where the polls of `member` look."""
        room = self.rooms.get(group)
        owner = None if room is None or room.strategy is None else member
        # Leave out paused topics: their leases end when a poll looks there again.
        names = self.with_replays(group, self.ledger.unpaused(group, member.topics))
        found = [self.ready.get((group, name, looking(name, owner))) for name in names]
        return [each for each in found if each is not None]

    def stop_looking(self, group: str, name: str, member: Member, numbers: Sequence[int]) -> None:
        """Let the polls of `member` not look at these queues any more."""
        ready, topic = self.ready.get((group, name, member)), self.ledger.topics.get(name)
        if ready is not None and topic is not None:
            ready.drop(numbers)
            for number in numbers:
                idle = topic.queues[number].idle
                if ready.add in idle:
                    idle.remove(ready.add)

    def wake(self, group: str) -> None:
        """Let the polls of `group` look again, whichever queues its members own."""
        self.ledger.arrived.update(self.ledger.subscriptions.topics_of(group))
        room = self.rooms.get(group)
        if room is not None and room.strategy is not None:
            for member in room.members.values():
                member.stir()

    # --- what a member has in hand --------------------------------------------------------------

    def held_by(self, group: str, member: Member) -> list[tuple[Queue, QueueHolds, Hold]]:
        """Return the holds of `member`, each with its queue."""
        return [
            (queue, holds, hold)
            for name in self.with_replays(group, member.topics)
            if (topic := self.ledger.topics.get(name)) is not None
            for queue in topic.queues
            if (holds := self.by_queue.get((group, name, queue.number))) is not None
            for hold in holds.held_by(member)
        ]

    def in_hand(self, group: str, member: Member, now: float) -> tuple[int, float]:
        """Return how many messages `member` holds, and when the first of its leases ends."""
        leased = [hold for *_, hold in self.held_by(group, member) if hold.deadline > now]
        count = sum(hold.end - hold.first for hold in leased)
        return count, min((hold.deadline for hold in leased), default=math.inf)

    def count_held(self, group: str, topic: str, queue: int) -> int:
        """Return how many messages of a queue members and transactions hold. Those that were
        replayed to the group count in the first queue of their topic.
        """
        names = (topic,) if queue else self.with_replays(group, (topic,))
        found = (self.by_queue.get((group, name, queue)) for name in names)
        return sum(holds.count_held() for holds in found if holds is not None)

    def redeliver(self, group: str, member: Member) -> None:
        """Redeliver what `member` holds. The member stays in `group`."""
        for _, holds, hold in reversed(self.held_by(group, member)):
            holds.give_back_held(hold.first, hold.end, hold.owner)
        self.ledger.arrived.update(self.with_replays(group, member.topics))

    def drop_member(self, group: str, member: Member) -> None:
        """Redeliver what `member` holds, and let its polls look at no queue: it is out."""
        for name in self.with_replays(group, member.topics):
            topic = self.ledger.topics.get(name)
            self.stop_looking(group, name, member, range(self.queues_of(name)))
            self.ready.pop((group, name, member), None)
            for queue in () if topic is None else topic.queues:
                holds = self.by_queue.get((group, name, queue.number))
                if holds is not None:  # None: the group has never polled this queue
                    holds.give_back_of(member)
        self.ledger.arrived.update(member.topics)

    # --- called when an append is applied -------------------------------------------------------

    def end_holds(self, ack: AckRange) -> None:
        """End the holds of a range that is acked. Later messages with the keys of the range go on
        once the ack is shown.
        """
        holds = self.by_queue.get((ack.group, ack.topic, ack.queue))
        if holds is not None:
            holds.end_acked(ack.first, ack.end)
            if holds.limiter is not None:
                holds.limiter.freed()
            if holds.order is not None:
                ledger = self.ledger
                ledger.shows.append((ledger.end, self._hand_on, (holds, ack)))

    def _hand_on(self, what: tuple[QueueHolds, AckRange]) -> None:
        holds, ack = what
        if not holds.has_ended and holds.hand_on(ack.first, ack.end):
            self.ledger.arrived.add(ack.topic)

    def give_back(self, ack: AckRange) -> None:
        """Redeliver a range whose ack was part of a transaction that was rolled back."""
        self.of(ack.group, ack.topic, ack.queue).give_back_all(ack.first, ack.end)
        self.ledger.arrived.add(ack.topic)

    def begin_again(self, key: GroupKey) -> None:
        """The group was moved in a queue: end its holds there, so that their deliveries cannot be
        acked any more, and let polls look at the queue.
        """
        holds = self.by_queue.pop(key, None)
        if holds is not None:
            holds.end_all()
        self.ready_of(*key[:2], self.owner(*key)).add(key[2])

    def forget(self, is_meant: Callable[[str, str], bool]) -> None:
        """End the holds of some groups in some topics, and forget where their polls look."""
        for key in [key for key in self.by_queue if is_meant(*key[:2])]:
            self.by_queue.pop(key).end_all()
        for at in [at for at in self.ready if is_meant(*at[:2])]:
            del self.ready[at]


def looking(topic: str, owner: Member | None) -> Member | None:
    """Return `owner` if members own the queues of `topic`, else None. All members compete for
    replayed dead letters.
    """
    return None if is_internal(topic) else owner
