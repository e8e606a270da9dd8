"""The groups of an engine: what each holds of each queue. Guarded by the engine's lock."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable

from fmq.basics.clock import Clock
from fmq.basics.results import MemberInfo
from fmq.consume.claims.backoff import DEFAULT
from fmq.consume.claims.by_priority import SpanWanted
from fmq.consume.claims.claim import Claim
from fmq.consume.claims.hold_map import Hold
from fmq.consume.claims.holds import QueueHolds
from fmq.consume.claims.membership import GroupRoom, Member
from fmq.consume.claims.ordered_claims import (
    LOOKED_AT_ONCE,
    InOrder,
    LookWanted,
    next_in_order,
    order_of,
)
from fmq.consume.claims.ready_queues import ReadyQueues
from fmq.consume.groups.priority_claims import Candidate, ClaimAsked
from fmq.consume.groups.sieve import SIFTED_AT_ONCE
from fmq.errors import UnknownGroup
from fmq.store.bytes.internal import is_internal
from fmq.store.bytes.kinds import AckRange, Changed, ChangeKind
from fmq.tx.ledger.ledger import GroupKey, Ledger, Queue, Topic

Topics = tuple[str, ...]


class Groups:
    """The holds of all groups, begun from the ledger and changed by every ack that is applied, and
    the members of each.
    """

    def __init__(self, ledger: Ledger, member_timeout: float, clock: Clock) -> None:
        """A member that gives no sign of life for `member_timeout` seconds is out."""
        self._ledger = ledger
        self._clock = clock
        self._member_timeout = member_timeout
        self.rooms: dict[str, GroupRoom] = {}  # by group
        self._holds: dict[GroupKey, QueueHolds] = {}
        # Messages since the oldest, of each group and topic.
        self._handed_out: dict[tuple[str, str], int] = {}
        # By group and topic, and by member if the queues belong to members.
        self._ready: dict[tuple[str, str, Member | None], ReadyQueues] = {}
        self._former: Callable[[GroupKey], int] | None = None
        self._former_until = 0.0
        self.first_death = math.inf  # no member of any group is out before it
        self.on_sooner: Callable[[], object] = lambda: None  # called when it is earlier than before
        self._found_us = ledger.last_us  # when the last record was written that was found
        for entry in ledger.undecided.values():
            # What an undecided transaction acks stays held until it is decided.
            for ack in entry.prepare.acks:
                self._holds_of(ack.group, ack.topic, ack.queue).reserve(ack.first, ack.end, entry)

    def _holds_of(self, group: str, topic: str, queue: int) -> QueueHolds:
        """Return the holds in one queue, made now if the group had none there."""
        key = group, topic, queue
        holds = self._holds.get(key)
        if holds is None:
            ready = self._ready_of(group, topic, self._owner(*key))
            holds = self._holds[key] = QueueHolds(self._ledger.acked_of(*key), ready, queue)
            self._load_tried(key, holds)
            known = self._ledger.queue(topic, queue)
            if self._former is not None and known is not None:
                upto, now = min(self._former(key), known.next), self._clock.monotonic()
                holds.hold_former(upto, self._former_until, now)
        return holds

    def _load_tried(self, key: GroupKey, holds: QueueHolds) -> None:
        """Hand out again what was tried before the engine was opened, or before a seek."""
        tried = self._ledger.tried.get(key)
        if tried:
            now, now_us = self._clock.monotonic(), self._clock.time_us()
            for first, end, count, due_us in tried.all():
                if not due_us:
                    # What was in hand at a kill waits, too: perhaps it kills its process each time.
                    # It was tried before the last record that the engine found.
                    tried_us = min(self._found_us, now_us)
                    due_us = tried_us + round(DEFAULT.delay(count) * 1_000_000)
                wait = max(due_us - now_us, 0) / 1_000_000
                # What need not wait is due before the poll that looks for it has begun.
                holds.tried_before(first, end, count, now + wait if wait else -math.inf)

    def hold_former(self, upto: Callable[[GroupKey], int], until: float) -> None:
        """Hold what was handed out before, `upto` an offset of each queue, for those who have it.

        They claim it again, or others get it at the time `until`.
        """
        self._former, self._former_until = upto, until

    def _queues_of(self, topic: str) -> int:
        known = self._ledger.topics.get(topic)
        return 0 if known is None else len(known.queues)

    def _owner(self, group: str, topic: str, queue: int) -> Member | None:
        room = self.rooms.get(group)
        owners = () if room is None else room.owners.get(topic, ())
        return owners[queue] if queue < len(owners) else None

    def with_replays(self, group: str, topics: Topics) -> Topics:
        """Return `topics`, and where what is replayed to `group` of their dead letters lies."""
        again = self._ledger.again
        if not again:
            return topics
        return *topics, *(again[group, name] for name in topics if (group, name) in again)

    @staticmethod
    def _looking(topic: str, owner: Member | None) -> Member | None:
        """Return whose queues `topic` has: members compete for what is replayed."""
        return None if is_internal(topic) else owner

    def _ready_of(self, group: str, topic: str, owner: Member | None) -> ReadyQueues:
        """Return the queues that the polls of `owner` look at; of all members if it is None."""
        ready = self._ready.get((group, topic, owner))
        if ready is None:
            ready = ReadyQueues(range(self._queues_of(topic)) if owner is None else (), owner)
            self._ready[group, topic, owner] = ready
        return ready

    # --- members --------------------------------------------------------------------------------

    def enter(self, group: str, member: Member, now: float) -> None:
        """Take `member` into `group`; raise StrategyDiffers or TopicsDiffer, or UnknownGroup if the
        group was deleted since it has joined.
        """
        if any((group, topic) not in self._ledger.subscriptions for topic in member.topics):
            raise UnknownGroup(group, was_deleted=True)
        room = self._room(group, now)
        if room is None:
            room = GroupRoom(group, self._member_timeout, self._queues_of)
        room.check(member)
        self.rooms[group] = room
        before = room.enter(member, now)
        if before is not None:
            self._give_back_of(group, before)
        self._share_out(room)
        if room.next_death < self.first_death:
            self.first_death = room.next_death
            self.on_sooner()

    def put_out(self, now: float) -> None:
        """Let the members of all groups out that gave no sign of life. The caller holds the
        engine's lock.
        """
        for group in [*self.rooms]:
            self._room(group, now)
        deaths = (room.next_death for room in self.rooms.values())
        self.first_death = min(deaths, default=math.inf)

    def _room(self, group: str, now: float) -> GroupRoom | None:
        """Return the room of `group` with the members that are alive; None if there is none."""
        room = self.rooms.get(group)
        if room is None or now < room.next_death:
            return room
        dead = room.expire(now)
        if not dead:
            return room
        for member in dead:
            self._give_back_of(group, member)
        self._share_out(room)
        if room.members:
            return room
        del self.rooms[group]
        return None

    def see(self, group: str, member: Member, now: float) -> GroupRoom:
        """Note that `member` is alive. If it is out, or silent for too long, it comes in anew.
        Return the room of the group.
        """
        room = self._room(group, now)
        if room is None or room.members.get(member.name) is not member:
            if member.refusal is not None:
                raise member.refusal.with_traceback(None)
            self.enter(group, member, now)
            return self.rooms[group]
        member.seen = now
        if room.owners and room.is_stale:
            self._share_out(room)
        return room

    def in_hand(self, group: str, member: Member) -> list[tuple[Queue, QueueHolds, Hold]]:
        """Return what `member` holds."""
        return [
            (queue, holds, hold)
            for name in self.with_replays(group, member.topics)
            if (topic := self._ledger.topics.get(name)) is not None
            for queue in topic.queues
            if (holds := self._holds.get((group, name, queue.number))) is not None
            for hold in holds.held_by(member)
        ]

    def leave(self, group: str, member: Member) -> None:
        """Let `member` out of `group`, and redeliver all that it holds."""
        room = self._room(group, self._clock.monotonic())
        if room is not None and room.leave(member):
            self._share_out(room)
            if not room.members:
                del self.rooms[group]
        self._give_back_of(group, member)

    def members(self, group: str, now: float) -> list[MemberInfo]:
        """Return the members of `group` that are not put out. The caller holds the engine's
        lock.
        """
        room = self.rooms.get(group)
        return [] if room is None else room.infos(now)

    def next_death(self, group: str) -> float:
        """Return when the next member of `group` may be out."""
        room = self.rooms.get(group)
        return math.inf if room is None else room.next_death

    def is_stale(self, group: str) -> bool:
        """Return whether the next sign of life of any member shares the queues of `group` out."""
        room = self.rooms.get(group)
        return room is None or room.is_stale

    def _share_out(self, room: GroupRoom) -> None:
        """Share the queues out. Who loses one is fenced before another gets it."""
        group = room.group
        moved = room.share_out()
        taken: dict[tuple[str, Member], list[int]] = {}
        for (topic, number), old, _ in moved:
            if old is not None:
                taken.setdefault((topic, old), []).append(number)
                holds = self._holds.get((group, topic, number))
                if holds is not None:
                    holds.give_back_of(old)
        for (topic, old), numbers in taken.items():
            self._stop_looking(group, topic, old, numbers)
        for (topic, number), _, new in moved:
            ready = self._ready_of(group, topic, new)
            ready.add(number)
            holds = self._holds.get((group, topic, number))
            if holds is not None:
                holds.belong_to(ready)
            self._ledger.arrived.add(topic)

    def _stop_looking(self, group: str, name: str, member: Member, numbers: list[int]) -> None:
        """Let the polls of `member` look at these queues no more."""
        ready, topic = self._ready.get((group, name, member)), self._ledger.topics.get(name)
        if ready is not None and topic is not None:
            ready.drop(numbers)
            for number in numbers:
                idle = topic.queues[number].idle
                if ready.add in idle:
                    idle.remove(ready.add)

    def _give_back_of(self, group: str, member: Member) -> None:
        """Redeliver what `member`, which is out, holds."""
        for name in self.with_replays(group, member.topics):
            self._ready.pop((group, name, member), None)
            topic = self._ledger.topics.get(name)
            for queue in () if topic is None else topic.queues:
                holds = self._holds.get((group, name, queue.number))
                if holds is not None:  # None: the group never polled this queue
                    holds.give_back_of(member)
        self._ledger.arrived.update(member.topics)

    # --- called when an append is applied -------------------------------------------------------

    def end_holds(self, ack: AckRange) -> None:
        """End the holds of a range that is acked. Those that wait for it wait until it is shown."""
        holds = self._holds.get((ack.group, ack.topic, ack.queue))
        if holds is not None:
            holds.end_acked(ack.first, ack.end)
            if holds.order is not None:
                ledger = self._ledger
                ledger.shows.append((ledger.end, None, self._hand_on, (holds, ack)))

    def _hand_on(self, what: tuple[QueueHolds, AckRange]) -> None:
        holds, ack = what
        if not holds.has_ended and holds.hand_on(ack.first, ack.end):
            self._ledger.arrived.add(ack.topic)

    def give_back(self, ack: AckRange) -> None:
        """Redeliver a range that a rolled-back transaction would have acked."""
        self._holds_of(ack.group, ack.topic, ack.queue).give_back_all(ack.first, ack.end)
        self._ledger.arrived.add(ack.topic)

    def changed(self, change: Changed) -> None:
        """Begin anew where a group was moved."""
        group, name = change.group, change.topic
        if change.asked == ChangeKind.SEEK:
            self._end([(group, name, number) for number, _ in change.places])
            for number, _ in change.places:
                self._ready_of(group, name, self._owner(group, name, number)).add(number)
        elif change.asked == ChangeKind.SKIP:
            for number, offset in change.places:
                self.end_holds(AckRange(group, name, number, offset, offset + change.value))
        elif change.asked == ChangeKind.DELETE_TOPIC:
            self._end([key for key in self._holds if key[1] == name])
            self._ready = {key: ready for key, ready in self._ready.items() if key[1] != name}
        elif change.asked == ChangeKind.ADD_QUEUES:
            for (_, topic, owner), ready in self._ready.items():
                if topic == name and owner is None:
                    ready.add_all(range(change.value))
        elif change.asked == ChangeKind.DELETE_GROUP:
            self._end([key for key in self._holds if key[0] == group])
            room = self.rooms.pop(group, None)
            for member in () if room is None else room.members.values():
                member.refusal = UnknownGroup(group, was_deleted=True)
                member.stir()  # its polls wait for nothing
                self._ledger.arrived.update(member.topics)
            # A group that is made again looks at queues that this one had found idle.
            self._ready = {key: ready for key, ready in self._ready.items() if key[0] != group}
        self._ledger.arrived.add(name)

    def _end(self, keys: Iterable[GroupKey]) -> None:
        """End the holds of these queues: no delivery of them counts any more."""
        for key in keys:
            holds = self._holds.pop(key, None)
            if holds is not None:
                holds.end_all()

    # --- called by consumers --------------------------------------------------------------------

    def claim(
        self,
        room: GroupRoom,
        topics: Topics,
        turn: int,
        limit: int,
        member: Member,
        now: float,
        deadline: float,
        *,
        in_one_piece: bool = False,
    ) -> Claim | SpanWanted | LookWanted | None:
        """Hold up to `limit` messages of one queue for `member` of `room` until `deadline`.

        Return a SpanWanted or LookWanted if something has to be read first. The search begins with
        queue number `turn` of all queues of `topics`, so that no queue starves. Leases that have
        ended by `now` are given back first.
        """
        ledger, group = self._ledger, room.group
        owner = None if room.strategy is None else member
        names = self.with_replays(group, topics) if ledger.again else topics
        names, start = (names, turn) if len(names) == 1 else self._in_turn(names, turn)
        for name in names:
            topic = ledger.topics.get(name)
            if topic is None:
                continue
            looks = owner if owner is None else self._looking(name, owner)
            ready = self._ready.get((group, name, looks)) or self._ready_of(group, name, looks)
            if ready.lease_ends:
                ready.expire(now)
            if not ready.numbers:
                start = 0
                continue
            text = ledger.subscriptions[group, name].filter
            wanted = max(limit, SIFTED_AT_ONCE) if text else limit
            i = bisect_left(ready.numbers, start % len(topic.queues))
            start = 0  # the other topics begin with their first queue
            if topic.has_priorities and not room.is_ordered:
                pieces_max = 1 if in_one_piece else wanted
                now_us = self._clock.time_us()
                asked = ClaimAsked(member, text, wanted, pieces_max, now, now_us, deadline)
                taken = self._claim_by_priority(group, topic, ready, i, asked)
                if taken is not None:
                    return taken
                continue
            for _ in range(len(ready.numbers)):
                i = 0 if i >= len(ready.numbers) else i
                queue = topic.queues[ready.numbers[i]]
                key = group, name, queue.number
                holds = self._holds.get(key) or self._holds_of(*key)
                if now >= holds.earliest_deadline:
                    holds.expire(now)
                if room.is_ordered:
                    most = max(limit, LOOKED_AT_ONCE) if self._may_expire(queue) else limit
                    ordered = next_in_order(
                        holds, queue, text, most, now, in_one_piece=in_one_piece
                    )
                    if isinstance(ordered, LookWanted):
                        return ordered
                    if ordered is not None:
                        return self._claim_in_order(member, queue, holds, ordered, deadline)
                    found = None
                else:
                    found = holds.next_range(queue.next, queue.first, wanted, now)
                if found is not None:
                    low, high, count = found
                    claim = Claim(member, queue, holds, low, high, text, count)
                    holds.hold(low, high, claim, deadline, count)
                    if queue.spans is not None:
                        self._claim_expired(claim, deadline)
                    return claim
                if ready.add not in queue.idle:
                    queue.idle.append(ready.add)
                ready.remove_idle(i, min(holds.earliest_deadline, holds.redeliveries.next_due()))
        return None

    def _in_turn(self, names: Topics, turn: int) -> tuple[Topics, int]:
        """Return the topics from the one on that has queue number `turn` of all their queues, and
        which of its own queues that is.
        """
        known = [name for name in names if name in self._ledger.topics]
        start = turn % (sum(map(self._queues_of, known)) or 1)
        for first, name in enumerate(known):
            if start < self._queues_of(name):
                return (*known[first:], *known[:first]), start
            start -= self._queues_of(name)
        return (), 0

    def _may_expire(self, queue: Queue) -> bool:
        """Return whether a message of `queue` may have expired by now."""
        spans = queue.spans
        return spans is not None and spans.may_have_expired(
            queue.first, queue.next, self._clock.time_us()
        )

    def _claim_in_order(
        self, member: Member, queue: Queue, holds: QueueHolds, found: InOrder, deadline: float
    ) -> Claim:
        (first, end), *rest = found.ranges
        claim = Claim(member, queue, holds, first, end, found.filter, found.tries)
        for each in rest:
            claim.add(*each)
        for each in found.ranges:
            holds.hold(*each, claim, deadline, found.tries)
        now_us = self._clock.time_us()
        if claim.may_have_expired(now_us):
            claim.now_us = now_us
        return claim

    def _claim_by_priority(
        self, group: str, topic: Topic, ready: ReadyQueues, i: int, asked: ClaimAsked
    ) -> Claim | SpanWanted | None:
        """Claim of the queue that has a message of the highest priority, or the oldest of the next
        queue if it is its turn.
        """
        found: list[Candidate] = []
        for number in (*ready.numbers[i:], *ready.numbers[:i]):
            queue, key = topic.queues[number], (group, topic.name, number)
            self._ledger.spans_of(queue)
            holds = self._holds_of(*key)
            if asked.now >= holds.earliest_deadline:
                holds.expire(asked.now)
            order = holds.by_priority(queue, asked.now)
            best = order.best(1)
            if isinstance(best, SpanWanted):
                return best
            if best is not None:
                found.append(Candidate(best.level, queue, holds, order))
                continue
            if ready.add not in queue.idle:
                queue.idle.append(ready.add)
            until = min(holds.earliest_deadline, holds.redeliveries.next_due())
            ready.remove_idle(bisect_left(ready.numbers, number), until)
        if not found:
            return None
        handed_out = self._handed_out.get((group, topic.name), 0)
        claim, self._handed_out[group, topic.name] = asked.take(found, handed_out)
        return claim

    def _claim_expired(self, claim: Claim, deadline: float) -> None:
        """Claim more messages if some of `claim` may have expired, to pass over many at once."""
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

    def claim_again(
        self, group: str, queue: Queue, first: int, end: int, member: Member, deadline: float
    ) -> list[Claim]:
        """Claim a range that `member` has had before: what is neither acked nor another's."""
        room = self.rooms[group]
        if (
            room.strategy is not None
            and not is_internal(queue.topic)
            and self._owner(group, queue.topic, queue.number) is not member
        ):
            return []
        holds = self._holds_of(group, queue.topic, queue.number)
        if room.is_ordered:
            order_of(holds, self._ledger.subscriptions[group, queue.topic].filter)
        claims = [Claim(member, queue, holds, *part) for part in holds.unacked(first, end)]
        return [each for each in claims if holds.hold_again(each.first, each.end, each, deadline)]

    def in_hand_of(self, group: str, member: Member, now: float) -> tuple[int, float]:
        """Return how many messages `member` has in hand, and when the first of its leases ends."""
        found = [
            holds.in_hand_of(member, now) for (of, *_), holds in self._holds.items() if of == group
        ]
        return sum(count for count, _ in found), min((end for _, end in found), default=math.inf)

    def next_lease_end(self, group: str, topics: Topics, member: Member) -> float:
        """Return when the next lease in these topics ends, or an earlier time.

        Call it only after a claim that has found nothing, because then every queue is idle.
        """
        ready = self._looked_at(group, topics, member)
        return min((each.next_lease_end() for each in ready), default=math.inf)

    def _looked_at(self, group: str, topics: Topics, member: Member) -> list[ReadyQueues]:
        room = self.rooms.get(group)
        owner = None if room is None or room.strategy is None else member
        names = self.with_replays(group, topics)
        found = [self._ready.get((group, name, self._looking(name, owner))) for name in names]
        return [each for each in found if each is not None]

    def has_unleased(self, group: str, topics: Topics, member: Member) -> bool:
        """Return whether a transaction, or an ack on its way, holds a message of these topics."""
        for ready in self._looked_at(group, topics, member):
            unleased = ready.unleased
            for holds in [*unleased]:
                if holds.has_unleased():
                    return True
                unleased.discard(holds)
        return False
