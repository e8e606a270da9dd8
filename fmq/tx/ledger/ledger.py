"""What the journal says, up to the last append planned: topics, undecided transactions, acks.

Everything here can be built again from the journal, and is: by `tx/apply`, in a replay and in the
running engine, which applies an append when it plans it. What readers and listeners may know of it
waits in `shows` until the append is durable. An engine that fails to write undoes nothing: it ends.

All of it is guarded by the engine's lock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from fmq.basics.message import Mark
from fmq.store.bytes.internal import is_internal
from fmq.store.bytes.kinds import AckRange, Changed, Prepare, Run
from fmq.store.index.index import NO_LANE, LaneKey, SegmentIndex
from fmq.store.reading.latest_run import LatestRun
from fmq.tx.ledger import dead_letters
from fmq.tx.ledger.acks import AckSet
from fmq.tx.ledger.attempts import AttemptMap
from fmq.tx.ledger.done_requests import Requests
from fmq.tx.ledger.id_window import IdWindow
from fmq.tx.ledger.spans import KnownPriorities, QueueSpans
from fmq.tx.ledger.state import State
from fmq.tx.ledger.timers import Timers


class Queue:
    """An ordered sequence of messages of a topic. Those from `first` up to `next` are visible, and
    those up to `end` are planned.
    """

    __slots__ = (
        *("end", "first", "idle", "lane", "latest", "next", "number", "owner", "settled", "spans"),
        "topic",
    )

    def __init__(self, owner: Topic, number: int) -> None:
        self.owner = owner
        self.topic = owner.name
        self.number = number
        self.first = 0
        self.next = 0
        self.end = 0
        self.settled = (
            True  # False: the first record of it that a replay meets says where it begins
        )
        self.spans: QueueSpans | None = None  # None: no message has a priority, and none expires
        self.latest: LatestRun | None = None  # the last run for which a consumer was woken
        self.lane = NO_LANE  # its part of the index of the newest segment that has messages of it
        self.idle: list[
            Callable[[int], None]
        ] = []  # called once, with its number, at the next message

    def end_idle(self) -> None:
        """Tell the groups that had found nothing to hand out that there is a message."""
        for found_nothing in self.idle:
            found_nothing(self.number)
        self.idle.clear()


class Topic:
    """A name with its queues."""

    __slots__ = ("has_priorities", "made", "name", "queues", "retain_ms", "waiting")

    def __init__(self, name: str, queues: int) -> None:
        self.name = name
        self.queues = [Queue(self, number) for number in range(queues)]
        self.made = False  # whether its TOPIC record is durable
        self.has_priorities = False  # whether a message of it has one above 0
        self.retain_ms = 0  # how long it keeps messages; 0: as the options say
        self.waiting: list[Callable[[], None]] = []  # called once, at the next message


class Subscription:
    """That a group takes the messages of a topic, and what is counted of it there."""

    __slots__ = ("expired", "filter", "group", "lost", "skipped", "topic")

    def __init__(self, group: str, topic: str) -> None:
        self.group = group
        self.topic = topic
        self.filter = ""  # what it wants of the topic, as `filters.stored` reads it; "": all
        self.lost = 0  # messages that retention has taken before an ack
        self.skipped = 0  # messages that somebody has passed over by hand
        self.expired = 0  # messages that had expired before the group got them


class Entry:
    """A sealed transaction that waits for its decision."""

    __slots__ = ("asked", "prepare", "runs", "start", "state", "tx")

    def __init__(self, prepare: Prepare) -> None:
        self.tx = prepare.tx
        self.prepare = prepare
        self.runs: list[Run] = []  # its PRE_MESSAGEs
        self.start = prepare.position  # of its append: there may be TOPIC records before PREPARE
        self.state = State.UNDECIDED
        self.asked = 0  # how many questions about it were answered since the engine was opened

    def ended(self, state: State) -> None:
        """Note that its decision is durable."""
        self.state = state


class Amount:
    """How many transactions are undecided, and how many messages and bytes they hold."""

    __slots__ = ("bytes", "messages", "transactions")

    def __init__(self) -> None:
        self.transactions = self.messages = self.bytes = 0

    def add(self, prepare: Prepare) -> None:
        self.transactions += 1
        self.messages += prepare.messages
        self.bytes += prepare.bytes

    def take(self, prepare: Prepare) -> None:
        self.transactions -= 1
        self.messages -= prepare.messages
        self.bytes -= prepare.bytes


class Listener(Protocol):
    """What an engine does at once when the ledger changes. Each call is under the engine's lock."""

    def undecided(self, entry: Entry) -> None:
        """Note a transaction that became undecided; not when it is relocated."""

    def decided(self, entry: Entry) -> None:
        """Note that a transaction was committed or rolled back."""

    def acked(self, ack: AckRange) -> None:
        """Note an ack."""

    def freed(self, ack: AckRange) -> None:
        """Note that the transaction which would have made this ack was rolled back."""

    def changed(self, change: Changed) -> None:
        """Note that a group or a topic was changed."""


GroupKey = tuple[str, str, int]


class Ledger:
    """The state of an engine, as of the last record applied.

    A position says of what is noted there that it is shown once `applied_upto` is above it.
    """

    def __init__(self, base: int) -> None:
        # What becomes visible with an append, in the order of the journal: the position from which
        # it is above, and a topic, its queue and a run; or None, a function and its argument.
        self.shows: deque[tuple[int, Any, Any, Any]] = deque()
        self.end = base  # of what is applied
        # The last change of marks, of decisions, of groups and topics, of acks.
        self.marked_at = self.decided_at = self.changed_at = self.acked_at = -1
        self.is_live = False  # whether a running engine plans on it
        self.topics: dict[str, Topic] = {}
        self.undecided: dict[int, Entry] = {}  # by tx, in the order of their PREPAREs
        self.by_tx_id: dict[str, Entry] = {}
        self.undecided_in_all = Amount()
        self.undecided_of: dict[str, Amount] = {}  # by producer
        self.acked: dict[GroupKey, AckSet] = {}
        self.tried: dict[GroupKey, AttemptMap] = {}  # of what is not acked
        self.subscriptions: dict[tuple[str, str], Subscription] = {}  # by group and topic
        self.dead: dict[str, dead_letters.DeadLetterState] = {}  # by group
        self.again: dict[tuple[str, str], str] = {}  # by group and topic: what is replayed of it
        self.deleted: dict[str, int] = {}  # where topics were deleted whose name may be used again
        self.marks: dict[str, Mark] = {}
        self.held_marks: dict[str, int] = {}  # those that an undecided transaction changes: its tx
        self.held_ids: dict[bytes, int] = {}  # keys that an undecided transaction holds: its tx
        self.id_window: IdWindow | None = None  # None until a message id is looked for
        self.requests = Requests()
        self.timers = Timers(base)
        self.priorities = KnownPriorities()
        self.listener: Listener | None = None  # None in a replay
        self.index = SegmentIndex(base)
        self.sealed: list[
            SegmentIndex
        ] = []  # of full segments whose index files are not yet written
        self.applied_upto = base  # what is shown
        self.last_us = 0
        self.floor = 0
        self.known_from = (
            0  # transactions prepared below it were decided before what is left of the journal
        )
        self.unsettled = False
        self.awaited: dict[
            str, list[Callable[[], None]]
        ] = {}  # wakeups for topics that do not exist yet
        self.arrived: set[str] = set()  # topics with new messages for which a consumer waits

    def all_is_shown(self) -> None:
        """Note, after a replay, that all is shown, and that an engine plans from now on."""
        self.marked_at = self.decided_at = self.changed_at = self.acked_at = -1
        self.timers.changed_at = -1
        self.is_live = self.index.is_live = True

    def topic(self, name: str, queues: int) -> Topic:
        """Return the topic; make it if it is not known yet."""
        topic = self.topics.get(name)
        if topic is None:
            topic = self.topics[name] = Topic(name, queues)
            topic.waiting = self.awaited.pop(name, [])
            if self.unsettled:
                for queue in topic.queues:
                    queue.settled = False
        return topic

    def is_deleted(self, topic: str, position: int) -> bool:
        """Return whether what was sent to the topic at `position` went with it."""
        return topic not in self.topics or self.deleted.get(topic, 0) > position

    def queue(self, topic: str, number: int) -> Queue | None:
        found = self.topics.get(topic)
        if found is None or number >= len(found.queues):
            return None
        return found.queues[number]

    def queue_met(self, topic: str, number: int) -> Queue | None:
        """Return the queue of a message that the journal holds; None if there cannot be one.

        Where segments have been dropped, its TOPIC record may be gone and the STATE that tells of
        it still ahead: until then a queue is there because a message of it is.
        """
        found = self.queue(topic, number)
        if found is None and self.unsettled:
            known = self.topic(topic, number + 1)
            if not known.made:
                self.grow(known, number + 1)
                found = known.queues[number]
        return found

    def grow(self, topic: Topic, queues: int) -> None:
        """Let `topic` have at least so many queues."""
        for number in range(len(topic.queues), queues):
            topic.queues.append(queue := Queue(topic, number))
            # It may be an older queue, whose first messages were in segments that are dropped.
            queue.settled = not self.unsettled

    def acked_of(self, group: str, topic: str, queue: int) -> AckSet:
        """Return the acks of `group` in the queue; an empty set for an unknown group."""
        key = group, topic, queue
        acked = self.acked.get(key)
        if acked is None:
            lane = self.queue(topic, queue)
            acked = self.acked[key] = AckSet(0 if lane is None else lane.first)
        return acked

    def tried_of(self, group: str, topic: str, queue: int) -> AttemptMap:
        """Return how often `group` has tried messages of the queue; empty for an unknown group."""
        key = group, topic, queue
        tried = self.tried.get(key)
        if tried is None:
            tried = self.tried[key] = AttemptMap()
        return tried

    def subscribe(self, group: str, topic: str) -> Subscription:
        """Return the subscription of `group` to `topic`, which begins now if there is none."""
        found = self.subscriptions.get((group, topic))
        if found is None:
            found = self.subscriptions[group, topic] = Subscription(group, topic)
        return found

    def raise_first(self, queue: Queue, first: int) -> None:
        """Let `queue` begin at `first`, because retention has dropped what is below it."""
        for (group, topic), subscription in self.subscriptions.items():
            if topic == queue.topic:
                acked = self.acked_of(group, topic, queue.number)
                subscription.lost += acked.drop_below(first)
                if (group, topic, queue.number) in self.tried:
                    self.tried[group, topic, queue.number].drop_below(first)
        queue.first = max(queue.first, first)
        for dead in self.dead.values():
            if dead.topic == queue.topic:
                dead.closed.drop_below(queue.first)
        if queue.spans is not None:
            queue.spans.drop_below(queue.first)

    def spans_of(self, queue: Queue) -> QueueSpans:
        """Return the spans of `queue`, made now if it has none."""
        if queue.spans is None:
            queue.spans = QueueSpans(self.priorities)
        return queue.spans

    def know_priorities(self, queue: Queue, offset: int, known: bytearray) -> None:
        """Keep the priorities that were read of a span, of the messages from `offset` on."""
        if queue.spans is not None:
            queue.spans.know(queue.first, offset, known)

    def _lost_below(self, subscription: Subscription, firsts: Mapping[LaneKey, int]) -> int:
        """Return how many messages the group loses if the queues begin at `firsts`."""
        lost = 0
        for (topic, number), first in firsts.items():
            queue = self.queue(topic, number) if topic == subscription.topic else None
            if queue is not None:
                acked = self.acked.get((subscription.group, topic, number)) or AckSet(queue.first)
                lost += acked.count_gaps(acked.floor, first)
        return lost

    def oldest_undecided(self) -> int | None:
        """Return where the append of the oldest undecided transaction begins, if there is one."""
        for entry in self.undecided.values():
            return entry.start
        return None

    def enter_segment(self, base: int) -> None:
        """Note that the next append lies in the segment at `base`."""
        if base == self.index.base:
            return
        self.sealed.append(self.index)
        self.index = SegmentIndex(base)
        self.index.is_live = self.is_live

    def made_topics(self) -> Iterator[Topic]:
        return (topic for topic in self.topics.values() if topic.made)

    def dead_letters_of(self, group: str) -> int:
        """Return how many dead letters a group has."""
        dead = self.dead.get(group)
        return 0 if dead is None else dead.count(self.queue(dead.topic, 0))

    def replayed_of(self, group: str, topic: str) -> list[tuple[int, int]]:
        """Return, as ranges of offsets, the dead letters of `topic` that were replayed to a group
        and are not acked.
        """
        name = self.again.get((group, topic))
        queue = None if name is None else self.queue(name, 0)
        if name is None or queue is None:
            return []
        acked = self.acked.get((group, name, 0)) or AckSet(queue.first)
        return [*acked.gaps(queue.first, queue.next)]

    def replayed(self) -> int:
        """Return how many dead letters were replayed, to all groups, and are not acked."""
        ranges = (each for key in self.again for each in self.replayed_of(*key))
        return sum(end - first for first, end in ranges)

    def is_awaited(self, topic: str) -> bool:
        """Return whether a caller waits for the next message of a topic."""
        known = self.topics.get(topic)
        return bool(known.waiting) if known is not None else topic in self.awaited

    def own_topics(self) -> list[Topic]:
        """Return the topics that callers know: those that are not internal."""
        topics = self.topics.values()
        return [topic for topic in topics if not is_internal(topic.name)]

    # --- carried by checkpoints and STATE records -------------------------------------------

    def carried(self, firsts: Mapping[LaneKey, int] | None = None) -> dict[str, Any]:
        """Return, for JSON, what a replay cannot find in the segments that are left.

        With `firsts`, return it as it will be when the queues begin at these offsets.
        """
        firsts = firsts or {}
        return {
            "floor": self.floor,
            "last_us": self.last_us,
            "topics": {
                topic.name: [
                    [max(queue.first, firsts.get((topic.name, queue.number), 0)), queue.end]
                    for queue in topic.queues
                ]
                for topic in self.made_topics()
            },
            "spans": self._carried_spans(firsts),
            "retained": {
                topic.name: topic.retain_ms for topic in self.made_topics() if topic.retain_ms
            },
            "deleted": {
                name: position for name, position in self.deleted.items() if position >= self.floor
            },
            "acks": [
                [*key, *acked.beyond(firsts.get(key[1:], 0))]
                for key, acked in sorted(self.acked.items())
                if not acked.is_empty  # of a group that has polled and not acked
            ],
            "tried": [
                [*key, left]
                for key, tried in sorted(self.tried.items())
                if (left := tried.beyond(firsts.get(key[1:], 0)))
            ],
            "groups": [
                [*key, each.filter, each.skipped, each.lost + self._lost_below(each, firsts)]
                for key, each in sorted(self.subscriptions.items())
            ],
            "dead": [
                dead.carried(firsts.get((dead.topic, 0), 0))
                for _, dead in sorted(self.dead.items())
            ],
            "expired": [
                [*key, each.expired]
                for key, each in sorted(self.subscriptions.items())
                if each.expired
            ],
            "requests": self.requests.carried(),
            "marks": {name: [value, data.hex()] for name, (value, data) in self.marks.items()},
        }

    def _carried_spans(self, firsts: Mapping[LaneKey, int]) -> list[list[Any]]:
        carried = []
        for topic in self.made_topics():
            for queue in topic.queues:
                if queue.spans is not None:
                    first = max(queue.first, firsts.get((topic.name, queue.number), 0))
                    said = queue.spans.carried(first)
                    if any(said):
                        carried.append([topic.name, queue.number, *said])
        return sorted(carried)  # topics have another order after a checkpoint

    def carry(self, state: dict[str, Any]) -> None:
        """Take over what `carried` returned at an earlier time."""
        self.last_us = max(self.last_us, state["last_us"])
        self.floor = max(self.floor, state["floor"])
        for name, ranges in state["topics"].items():
            topic = self.topic(name, len(ranges))
            self.grow(topic, len(ranges))
            topic.made = True
            for queue, (first, after) in zip(topic.queues, ranges, strict=True):
                queue.first = max(queue.first, first)
                if queue.end < after:  # never in a running engine
                    queue.next = queue.end = after
                queue.settled = True
                if queue.spans is not None:
                    queue.spans.drop_below(queue.first)
        for name, number, *spans in state.get("spans", ()):  # an older fmq carried none
            topic = self.topics[name]
            self.spans_of(topic.queues[number]).carry(spans)
            topic.has_priorities = topic.has_priorities or bool(spans[0])
        self.deleted.update(state.get("deleted", {}))
        for name, retain_ms in state.get("retained", {}).items():
            self.topics[name].retain_ms = retain_ms
        for group, name, number, floor, ranges in state["acks"]:
            if not floor and not ranges and "groups" not in state:
                continue  # of a group that had only polled, as an older fmq carried it
            self.subscribe(group, name)  # an older fmq carried no groups
            acked = self.acked_of(group, name, number)
            acked.is_empty = False  # it was made or moved there, even if it has acked nothing
            acked.add(0, floor)
            for first, end in ranges:
                acked.add(first, end)
        for group, name, wanted, skipped, lost in state.get("groups", ()):
            subscription = self.subscribe(group, name)
            # A replay that begins after acks were dropped has counted too much so far.
            subscription.filter, subscription.skipped, subscription.lost = wanted, skipped, lost
        if "dead" in state:  # an older fmq had no dead letters
            dead_letters.carry(self, state["dead"])
        for group, name, number, tries in state.get("tried", ()):
            tried = self.tried_of(group, name, number)
            for first, end, count, due_us in tries:
                # What the journal has said already is as new as `state`, or newer.
                tried.fill(first, end, count, due_us)
        for group, name, expired in state.get("expired", ()):  # an older fmq carried none
            self.subscribe(group, name).expired = expired
        self.requests.carry(state.get("requests", []))
        for name, (value, data) in state.get("marks", {}).items():
            self.marks[name] = Mark(value, bytes.fromhex(data))
        # Of all groups, also those that `state` does not name: an older fmq left ranges below the
        # first message.
        for (_, name, number), acked in self.acked.items():
            if (lane := self.queue(name, number)) is not None:
                acked.drop_below(lane.first)
        for dead in self.dead.values():
            if (lane := self.queue(dead.topic, 0)) is not None:
                dead.closed.drop_below(lane.first)
        for key, tried in self.tried.items():
            acked = self.acked_of(*key)
            for first, end, *_ in tried.all():
                at = first
                for low, high in acked.gaps(first, end):
                    tried.drop(at, low)
                    at = high
                tried.drop(at, end)


def seal_text(seal: bytes) -> str:
    """Return a seal as text."""
    return seal.hex()
