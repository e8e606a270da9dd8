"""The groups of an engine: which member holds what of each queue, and who gets what next.

For each group the parts are

    GroupRoom       its members, and which of them owns which queue (membership.py)
    QueueHolds      for each queue, what is held, given back or untried (holds.py)
    ReadyQueues     for each topic, the queues in which a poll has to look (ready_queues.py)

Without a strategy, all members of a group share one ReadyQueues for each topic, and compete. With a
strategy each queue has one owner, and each member has a ReadyQueues of its own queues.

An example: topic "orders" has four queues, and group "mail" has the members A and B with the
strategy "average". A owns the queues 0 and 1, B the queues 2 and 3. Only the polls of B look at
queue 3. When B closes, or makes no call for `member_timeout`, B is out: its holds are given back,
and the next call of A shares the queues out again. From then on A owns all four, and B's messages
are among those that it is handed. If a thousand members join, the first look behind the last of
them shares the queues out, once.

A poll calls `see` (the member is alive) and `claim` (hold messages of the first ready queue that
has some). The ledger calls `end_holds`, `give_back` and `changed` when an append is applied, in
this engine or by another call: so an ack ends its hold when it is planned, before it is durable. If
the write fails, the engine ends, and all holds with it.

All of it is guarded by the engine's lock.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable

from fmq.allocation.named import NAMES
from fmq.arguments.options import Options
from fmq.basics.clock import Clock
from fmq.basics.counts import GroupTally
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
from fmq.tx.ledger.ledger import GroupKey, Ledger
from fmq.tx.ledger.queues import Queue, Topic

Topics = tuple[str, ...]


class Groups:
    """The members and holds of all groups. They begin as the ledger says, and change with each ack
    that is applied.
    """

    def __init__(self, ledger: Ledger, member_timeout: float, clock: Clock) -> None:
        """A member that makes no call for `member_timeout` seconds is out."""
        self._ledger = ledger
        self._clock = clock
        self._member_timeout = member_timeout
        self.rooms: dict[str, GroupRoom] = {}  # the room of each group, by the group's name
        # Rooms whose members came or went. The next look shares out their queues anew.
        self._unshared: set[GroupRoom] = set()
        self.tallies: dict[str, GroupTally] = {}  # what each group has done
        self._holds: dict[GroupKey, QueueHolds] = {}
        # By group and topic: how many messages were handed out since the oldest one was chosen.
        self._handed_out: dict[tuple[str, str], int] = {}
        # By group, topic and owner. The owner is None if all members share the queues.
        self._ready: dict[tuple[str, str, Member | None], ReadyQueues] = {}
        self._former: Callable[[GroupKey], int] | None = None
        self._former_until = 0.0
        self.first_death = math.inf  # no member of any group will be out before this time
        # Called when `first_death` becomes earlier.
        self.on_sooner: Callable[[], object] = lambda: None
        # The time of the last record or attempt that the engine found.
        self._found_us = max(ledger.last_us, ledger.tried_us)
        for entry in ledger.undecided.values():
            # What an undecided transaction acks stays held until the transaction is decided.
            for ack in entry.prepare.acks:
                self._holds_of(ack.group, ack.topic, ack.queue).reserve(ack.first, ack.end, entry)

    def _holds_of(self, group: str, topic: str, queue: int) -> QueueHolds:
        """Return the group's holds in one queue. Make them if there are none."""
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
        """Let messages be handed out again that were tried before the engine was opened, or before
        a seek.
        """
        tried = self._ledger.tried.get(key)
        if tried:
            now, now_us = self._clock.monotonic(), self._clock.time_us()
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

    def _queues_of(self, topic: str) -> int:
        known = self._ledger.topics.get(topic)
        return 0 if known is None else len(known.queues)

    def _owner(self, group: str, topic: str, queue: int) -> Member | None:
        room = self.rooms.get(group)
        owners = () if room is None else room.owners.get(topic, ())
        return owners[queue] if queue < len(owners) else None

    def with_replays(self, group: str, topics: Topics) -> Topics:
        """Return `topics`, and the internal topics with the dead letters that were replayed to
        `group`.
        """
        again = self._ledger.again
        if not again:
            return topics
        return *topics, *(again[group, name] for name in topics if (group, name) in again)

    @staticmethod
    def _looking(topic: str, owner: Member | None) -> Member | None:
        """Return `owner` if members own the queues of `topic`, else None. All members compete for
        replayed dead letters.
        """
        return None if is_internal(topic) else owner

    def _ready_of(self, group: str, topic: str, owner: Member | None) -> ReadyQueues:
        """Return the queues at which the polls of `owner` look; those of all members if it
        is None.
        """
        ready = self._ready.get((group, topic, owner))
        if ready is None:
            ready = ReadyQueues(range(self._queues_of(topic)) if owner is None else (), owner)
            self._ready[group, topic, owner] = ready
        return ready

    # --- members --------------------------------------------------------------------------------

    def enter(self, group: str, member: Member, now: float) -> None:
        """Take `member` into `group`. Raises StrategyDiffers or TopicsDiffer, or UnknownGroup if
        the group was deleted since the member joined.
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
        self._has_changed(room)
        if member.strategy not in (None, *NAMES.values()):
            self._try_out(room, member)
        if room.next_death < self.first_death:
            self.first_death = room.next_death
            self.on_sooner()

    def put_out(self, now: float) -> None:
        """Take out the members of all groups that made no call for too long. The caller holds the
        engine's lock.
        """
        for group in [*self.rooms]:
            self._room(group, now)
        deaths = (room.next_death for room in self.rooms.values())
        self.first_death = min(deaths, default=math.inf)

    def _room(self, group: str, now: float) -> GroupRoom | None:
        """Return the room of `group` with the members that are alive; None if it has none."""
        room = self.rooms.get(group)
        if room is None or now < room.next_death:
            return room
        dead = room.expire(now)
        if not dead:
            return room
        for member in dead:
            self._give_back_of(group, member)
        self._has_changed(room)
        return room if room.members else None

    def see(self, group: str, member: Member, now: float) -> GroupRoom:
        """Note that `member` is alive, and return the room of its group. If it was taken out, or
        was silent for too long, it joins again.
        """
        room = self._room(group, now)
        if room is None or room.members.get(member.name) is not member:
            if member.refusal is not None:
                raise member.refusal.with_traceback(None)
            self.enter(group, member, now)
            room = self.rooms[group]
        member.seen = now
        if room.strategy is not None and (room in self._unshared or room.is_stale):
            self._share_out(room)
        return room

    def in_hand(self, group: str, member: Member) -> list[tuple[Queue, QueueHolds, Hold]]:
        """Return the holds of `member`, each with its queue."""
        return [
            (queue, holds, hold)
            for name in self.with_replays(group, member.topics)
            if (topic := self._ledger.topics.get(name)) is not None
            for queue in topic.queues
            if (holds := self._holds.get((group, name, queue.number))) is not None
            for hold in holds.held_by(member)
        ]

    def holds_of(self, group: str) -> list[tuple[Queue, QueueHolds]]:
        """Return each queue in which `group` may have messages in hand or given back, sorted by
        topic and number, with the group's holds in it.
        """
        for key in [key for key in self._ledger.tried if key[0] == group]:
            self._holds_of(*key)
        found = [
            (queue, holds)
            for (of, topic, number), holds in self._holds.items()
            if of == group and (queue := self._ledger.queue(topic, number)) is not None
        ]
        return sorted(found, key=lambda each: (each[0].topic, each[0].number))

    def leave(self, group: str, member: Member) -> None:
        """Take `member` out of `group`, and redeliver everything that it holds."""
        room = self._room(group, self._clock.monotonic())
        if room is not None and room.leave(member):
            self._has_changed(room)
        self._give_back_of(group, member)

    def give_back_of(self, group: str, member: Member) -> None:
        """Redeliver what `member` holds. It stays in `group`."""
        for _, holds, hold in reversed(self.in_hand(group, member)):
            holds.give_back_held(hold.first, hold.end, hold.owner)
        self._ledger.arrived.update(self.with_replays(group, member.topics))

    def _try_out(self, room: GroupRoom, member: Member) -> None:
        """Share out at once, by a strategy that is not one of fmq. If it refuses, so does the call
        that brings in `member`.
        """
        try:
            self._share_out(room)
        except BaseException:
            room.leave(member)
            self._has_changed(room)
            raise

    def _has_changed(self, room: GroupRoom) -> None:
        """Have the queues shared out by the next look, as members came or went: however many they
        are, that is done once. If none is left, the queues belong to no member from now on.
        """
        if not room.members:
            self._share_out(room)
            del self.rooms[room.group]
        elif room.strategy is not None:
            self._unshared.add(room)

    def members(self, group: str, now: float) -> list[MemberInfo]:
        """Return the members of `group` that are alive, with what they own from now on. The caller
        holds the engine's lock.
        """
        self.share_out(group)
        room = self.rooms.get(group)
        return [] if room is None else room.infos(now)

    def count_members(self, group: str) -> int:
        """Return how many members `group` has. The caller holds the engine's lock."""
        room = self.rooms.get(group)
        return 0 if room is None else len(room.members)

    def next_death(self, group: str) -> float:
        """Return when the next member of `group` may count as dead."""
        room = self.rooms.get(group)
        return math.inf if room is None else room.next_death

    def share_out(self, group: str) -> bool:
        """Share the queues of `group` out, if members came or went, or queues were added, since
        that was done. Return whether the group has members. The caller holds the engine's lock.
        """
        room = self.rooms.get(group)
        if room is not None and (room in self._unshared or room.is_stale):
            self._share_out(room)
        return room is not None

    def _share_out(self, room: GroupRoom) -> None:
        """Share the queues out again. A former owner loses its holds before the new owner
        can poll.
        """
        group = room.group
        self._unshared.discard(room)
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
            if room.members.get(old.name) is not old:
                self._ready.pop((group, topic, old), None)
        for (topic, number), _, new in moved:
            ready = self._ready_of(group, topic, new)
            ready.add(number)
            holds = self._holds.get((group, topic, number))
            if holds is not None:
                holds.belong_to(ready)
            self._ledger.arrived.add(topic)

    def _stop_looking(self, group: str, name: str, member: Member, numbers: list[int]) -> None:
        """Let the polls of `member` not look at these queues any more."""
        ready, topic = self._ready.get((group, name, member)), self._ledger.topics.get(name)
        if ready is not None and topic is not None:
            ready.drop(numbers)
            for number in numbers:
                idle = topic.queues[number].idle
                if ready.add in idle:
                    idle.remove(ready.add)

    def _give_back_of(self, group: str, member: Member) -> None:
        """Redeliver what `member` holds: it is out."""
        for name in self.with_replays(group, member.topics):
            topic = self._ledger.topics.get(name)
            if topic is not None:
                self._stop_looking(group, name, member, [*range(len(topic.queues))])
            self._ready.pop((group, name, member), None)
            for queue in () if topic is None else topic.queues:
                holds = self._holds.get((group, name, queue.number))
                if holds is not None:  # None: the group has never polled this queue
                    holds.give_back_of(member)
        self._ledger.arrived.update(member.topics)

    # --- called when an append is applied -------------------------------------------------------

    def end_holds(self, ack: AckRange) -> None:
        """End the holds of a range that is acked. Later messages of its keys go on once the ack is
        shown.
        """
        holds = self._holds.get((ack.group, ack.topic, ack.queue))
        if holds is not None:
            holds.end_acked(ack.first, ack.end)
            if holds.order is not None:
                ledger = self._ledger
                ledger.shows.append((ledger.end, self._hand_on, (holds, ack)))

    def _hand_on(self, what: tuple[QueueHolds, AckRange]) -> None:
        holds, ack = what
        if not holds.has_ended and holds.hand_on(ack.first, ack.end):
            self._ledger.arrived.add(ack.topic)

    def give_back(self, ack: AckRange) -> None:
        """Redeliver a range whose ack was part of a transaction that was rolled back."""
        self._holds_of(ack.group, ack.topic, ack.queue).give_back_all(ack.first, ack.end)
        self._ledger.arrived.add(ack.topic)

    def take_over(self, options: Options) -> None:
        """Let members be silent for as long as `options` say from now on."""
        self._member_timeout = options.member_timeout_seconds
        for room in self.rooms.values():
            room.set_timeout(self._member_timeout)
        self.first_death = 0.0  # the next look finds out when a member may be out
        self.on_sooner()

    def changed(self, change: Changed) -> None:
        """Make new holds where a change has moved or deleted a group or a topic."""
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
        elif change.asked == ChangeKind.RESUME and group:
            self._ledger.arrived.update(
                topic for of, topic in self._ledger.subscriptions if of == group
            )
        elif change.asked == ChangeKind.DELETE_GROUP:
            self._end([key for key in self._holds if key[0] == group])
            room = self.rooms.pop(group, None)
            self.tallies.pop(group, None)
            self._unshared.discard(room)
            for member in () if room is None else room.members.values():
                member.refusal = UnknownGroup(group, was_deleted=True)
                member.stir()  # the polls of the member have nothing to wait for
                self._ledger.arrived.update(member.topics)
            # If the group is made again, it has to look at queues that this one had found idle.
            self._ready = {key: ready for key, ready in self._ready.items() if key[0] != group}
        self._ledger.arrived.add(name)

    def _end(self, keys: Iterable[GroupKey]) -> None:
        """End the holds of these queues: their deliveries cannot be acked any more."""
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

        Return a SpanWanted or LookWanted if something has to be read first; None if there is
        nothing. The search begins with queue number `turn`, counted over all queues of `topics`, so
        that no queue starves. Leases that have ended by `now` are given back first.
        """
        ledger, group = self._ledger, room.group
        owner = None if room.strategy is None else member
        if ledger.pauses:
            topics = ledger.unpaused(group, topics)
        names = self.with_replays(group, topics) if ledger.again else topics
        start = turn
        if len(names) > 1:
            names, start = self._in_turn(names, turn)
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
            start = 0  # the search in the other topics begins with their first queue
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
                        return self._claim_in_order(member, queue, holds, ordered, now, deadline)
                    found = None
                else:
                    found = holds.next_range(queue.next, queue.first, wanted, now)
                if found is not None:
                    low, high, count = found
                    claim = Claim(member, queue, holds, low, high, text, count, now)
                    holds.hold(low, high, claim, deadline, count)
                    if queue.spans is not None:
                        self._claim_expired(claim, deadline)
                    return claim
                if ready.add not in queue.idle:
                    queue.idle.append(ready.add)
                ready.remove_idle(i, min(holds.earliest_deadline, holds.redeliveries.next_due()))
        return None

    def _in_turn(self, names: Topics, turn: int) -> tuple[Topics, int]:
        """Find queue number `turn`, counted over the queues of all topics in a circle. Return the
        topics, rotated so that its topic comes first, and its number in that topic.
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
        self,
        member: Member,
        queue: Queue,
        holds: QueueHolds,
        found: InOrder,
        now: float,
        deadline: float,
    ) -> Claim:
        (first, end), *rest = found.ranges
        claim = Claim(member, queue, holds, first, end, found.filter, found.tries, now)
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
        """Claim from the queue with a message of the highest priority. If it is the turn of the
        oldest message of the next queue, claim that.
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

    def claim_again(
        self, group: str, queue: Queue, first: int, end: int, member: Member, deadline: float
    ) -> list[Claim]:
        """Claim the parts of a range that are neither acked nor held by another member. `member`
        has had them before.
        """
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
        # When the member has polled them is not known any more.
        now = self._clock.monotonic()
        parts = holds.unacked(first, end)
        claims = [Claim(member, queue, holds, *part, since=now) for part in parts]
        return [each for each in claims if holds.hold_again(each.first, each.end, each, deadline)]

    def in_hand_of(self, group: str, member: Member, now: float) -> tuple[int, float]:
        """Return how many messages `member` holds, and when the first of its leases ends."""
        found = [
            holds.in_hand_of(member, now) for (of, *_), holds in self._holds.items() if of == group
        ]
        return sum(count for count, _ in found), min((end for _, end in found), default=math.inf)

    def next_lease_end(self, group: str, topics: Topics, member: Member) -> float:
        """Return a time before which no lease in these topics ends.

        Call it only after a claim that has found nothing: then every queue is idle.
        """
        ready = self._looked_at(group, topics, member)
        return min((each.next_lease_end() for each in ready), default=math.inf)

    def _looked_at(self, group: str, topics: Topics, member: Member) -> list[ReadyQueues]:
        room = self.rooms.get(group)
        owner = None if room is None or room.strategy is None else member
        # No lease of what is paused ends before a poll looks there again.
        names = self.with_replays(group, self._ledger.unpaused(group, topics))
        found = [self._ready.get((group, name, self._looking(name, owner))) for name in names]
        return [each for each in found if each is not None]

    def has_unleased(self, group: str, topics: Topics, member: Member) -> bool:
        """Return whether a hold without a deadline, such as that of a transaction, is in these
        topics.
        """
        for ready in self._looked_at(group, topics, member):
            unleased = ready.unleased
            for holds in [*unleased]:
                if holds.has_unleased():
                    return True
                unleased.discard(holds)
        return False
