"""The ledger: what the journal says, up to the last append that was planned.

It holds topics, undecided transactions, acks and more. `tx/ledger/apply.py` builds it: in a replay
from the journal, in the running engine when an append is planned. What readers and listeners will
see of an append waits in `shows` until the append is durable. If a write fails, nothing is undone:
the engine ends, and the next one replays the journal.

All of it is guarded by the engine's lock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, Protocol

from fmq.arguments.options import QUEUES_MAX
from fmq.basics.clock import as_datetime
from fmq.basics.message import Mark
from fmq.basics.results import Limit, Pause
from fmq.store.bytes.internal import is_internal, replay_topic
from fmq.store.bytes.kinds import AckRange, Changed, Joint, MarkChange, Prepare, Run
from fmq.store.index.index import SegmentIndex
from fmq.tx.ledger.acks import AckSet
from fmq.tx.ledger.attempts import AttemptMap
from fmq.tx.ledger.dead_letters import DeadLetterState
from fmq.tx.ledger.done_requests import Requests
from fmq.tx.ledger.erasures import Erasures
from fmq.tx.ledger.id_window import IdWindow
from fmq.tx.ledger.queues import Queue, Topic
from fmq.tx.ledger.spans import KnownPriorities, QueueSpans
from fmq.tx.ledger.state import State
from fmq.tx.ledger.timers import Timers
from fmq.tx.said.limit_met import LimitMet
from fmq.tx.said.pauses import PauseMet
from fmq.tx.said.schedule_met import ScheduleMet


class Subscription:
    """The subscription of a group to a topic, with its filter and its counts."""

    __slots__ = ("acked", "expired", "filter", "group", "lost", "skipped", "topic")

    def __init__(self, group: str, topic: str) -> None:
        self.group = group
        self.topic = topic
        # The filter as text, as `filters.stored_filter` reads it; "" for all messages.
        self.filter = ""
        # Messages that retention dropped before the group had acked them.
        self.lost = 0
        self.skipped = 0  # messages that were passed over by an operator's command
        self.expired = 0  # messages that expired before the group got them
        self.acked = 0  # messages that were acked since the engine was opened


class Subscriptions(dict[tuple[str, str], Subscription]):
    """The subscriptions by group and topic, with an index of the topics of each group.

    Only setting and deleting one item keep the index, and nothing else changes it. Looks at one
    group would else take longer the more other groups there are.
    """

    def __init__(self) -> None:
        super().__init__()
        self._topics: dict[str, dict[str, None]] = {}

    def __setitem__(self, key: tuple[str, str], subscription: Subscription) -> None:
        super().__setitem__(key, subscription)
        group, topic = key
        self._topics.setdefault(group, {})[topic] = None

    def __delitem__(self, key: tuple[str, str]) -> None:
        super().__delitem__(key)
        group, topic = key
        del self._topics[group][topic]
        if not self._topics[group]:
            del self._topics[group]

    def topics_of(self, group: str) -> tuple[str, ...]:
        """Return the topics that `group` takes from, in the order in which it came to them."""
        return tuple(self._topics.get(group, ()))


class Entry:
    """A sealed transaction that waits for its decision."""

    __slots__ = ("asked", "prepare", "runs", "start", "state", "tx")

    def __init__(self, prepare: Prepare) -> None:
        self.tx = prepare.tx
        self.prepare = prepare
        self.runs: list[Run] = []  # the PRE_MESSAGEs of the transaction, in their order
        # The position of its append, which may begin with TOPIC records, before PREPARE.
        self.start = prepare.position
        self.state = State.UNDECIDED
        # Questions about the transaction that were answered since the engine was opened.
        self.asked = 0

    def ended(self, state: State) -> None:
        """Note that the decision of the transaction is durable."""
        self.state = state

    def lost(self, damaged: Mapping[int, str]) -> list[Run]:
        """Return its messages that are among the `damaged` ones. If there are any, the transaction
        is impaired.
        """
        return [run for run in self.runs if run.position in damaged] if damaged else []


class Amount:
    """A number of undecided transactions, and how many messages and bytes they hold together."""

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
    """Parts of an engine that react at once when the ledger changes. Each call is under the
    engine's lock.
    """

    def undecided(self, entry: Entry) -> None:
        """Note a transaction that became undecided. A relocation does not call this."""

    def decided(self, entry: Entry) -> None:
        """Note that a transaction was committed or rolled back."""

    def acked(self, ack: AckRange) -> None:
        """Note an ack."""

    def freed(self, ack: AckRange) -> None:
        """Note that the transaction which would have made this ack was rolled back."""

    def changed(self, change: Changed) -> None:
        """Note that a group or a topic was changed."""

    def configured(self) -> None:
        """Note that options of the directory were changed."""


GroupKey = tuple[str, str, int]


class Ledger:
    """The state of an engine, up to the last append that was planned.

    Some changes are noted with a position. Such a change is shown once `shown_to` is above it.
    """

    def __init__(self, base: int) -> None:
        # What waits to be shown, in the order of the journal. Each entry has the position that
        # `shown_to` has to exceed. Then come a queue and a run, or a function and its argument. A
        # run has its own position. A function has `end`, which is where its append begins, as
        # `end` moves on when all of the append is applied. An append becomes durable as a whole,
        # so both are shown at one instant.
        self.shows: deque[tuple[int, Any, Any]] = deque()
        self.end = base  # the end of the last append applied
        # The position of the last change of marks, of decisions, of groups and topics, and of acks.
        self.marked_at = self.decided_at = self.changed_at = self.acked_at = -1
        self.is_live = False  # True once a running engine plans on this ledger
        # Transactions that were decided since the engine was opened.
        self.commits = self.rollbacks = 0
        self.topics: dict[str, Topic] = {}
        # The undecided transactions by number, in the order of their PREPAREs.
        self.undecided: dict[int, Entry] = {}
        self.by_tx_id: dict[str, Entry] = {}
        self.undecided_in_all = Amount()
        self.undecided_of: dict[str, Amount] = {}  # how much is undecided, by name of the producer
        self.acked: dict[GroupKey, AckSet] = {}
        self.tried: dict[GroupKey, AttemptMap] = {}  # attempts of messages that are not acked
        self.subscriptions = Subscriptions()
        # The pauses by group and topic. One of the two is "", because a group or a topic is paused.
        self.pauses: dict[tuple[str, str], PauseMet] = {}
        self.limits: dict[str, LimitMet] = {}  # the limit of each group, by its name
        self.schedules: dict[str, ScheduleMet] = {}
        self.dead: dict[str, DeadLetterState] = {}  # the dead letters by name of the group
        # Group and topic -> the internal topic with the group's replayed dead letters of that
        # topic.
        self.again: dict[tuple[str, str], str] = {}
        # For each name of a deleted topic, the position of the delete. The name may be used again.
        self.deleted: dict[str, int] = {}
        # The options that are stored in the directory. They hold for every program that uses it.
        self.options: dict[str, Any] = {}
        self.marks: dict[str, Mark] = {}
        # Marks that an undecided transaction changes -> the number of that transaction.
        self.held_marks: dict[str, int] = {}
        self.joint: Joint | None = None  # the newest joint decision
        self.endings_left = 0  # how many of its endings still have to follow
        # Message id keys that an undecided transaction holds -> the number of that transaction.
        self.held_ids: dict[bytes, int] = {}
        # The window is made when the first message id is looked up.
        self.id_window: IdWindow | None = None
        self.requests = Requests()
        self.erasures = Erasures()
        self.timers = Timers(base)
        self.priorities = KnownPriorities()
        # Where a replay has met messages whose bodies are damaged, with what is wrong there. Their
        # heads are sound, so all is known of them but the bodies.
        self.damaged: dict[int, str] = {}
        self.listener: Listener | None = None  # None during a replay
        self.index = SegmentIndex(base)
        # Indexes of full segments that have no index file yet.
        self.sealed: list[SegmentIndex] = []
        self.shown_to = base  # readers see everything below this position
        self.last_us = 0
        self.tried_us = 0  # the time of the last attempt that a replay has found in ATTEMPTS
        self.floor = 0
        # Transactions with a lower number were decided, and their records may have been dropped.
        self.known_from = 0
        self.unsettled = False
        # Wakeups of callers that wait for topics which do not exist yet.
        self.awaited: dict[str, list[Callable[[], None]]] = {}
        self.arrived: set[str] = set()  # topics with new messages, for which a consumer waits

    def all_is_shown(self) -> None:
        """Note that the replay is over: all is shown, and an engine plans from now on."""
        self.marked_at = self.decided_at = self.changed_at = self.acked_at = -1
        self.timers.changed_at = -1
        self.is_live = self.index.is_live = True
        self._begin_count()

    def _begin_count(self) -> None:
        """Count what an engine does from now on, and not what the replay has met."""
        self.commits = self.rollbacks = 0
        for topic in self.topics.values():
            topic.counts_from = sum(queue.end for queue in topic.queues)
        for subscription in self.subscriptions.values():
            subscription.acked = 0
        for dead in self.dead.values():
            dead.carried_since = 0

    def topic(self, name: str, queues: int) -> Topic:
        """Return the topic. Make it, with this many queues, if it is not known."""
        topic = self.topics.get(name)
        if topic is None:
            topic = self.topics[name] = Topic(name, queues)
            topic.waiting = self.awaited.pop(name, [])
            if self.unsettled:
                for queue in topic.queues:
                    queue.is_placed = False
        return topic

    def set_mark(self, change: MarkChange) -> None:
        """Set or remove a mark, as `change` says."""
        self.marked_at = self.end
        if change.data is None:
            self.marks.pop(change.name, None)
        else:
            self.marks[change.name] = Mark(change.value, change.data)

    def is_deleted(self, topic: str, position: int) -> bool:
        """Return whether a message sent to `topic` at `position` was deleted with the topic."""
        return topic not in self.topics or self.deleted.get(topic, 0) > position

    def queue(self, topic: str, number: int) -> Queue | None:
        found = self.topics.get(topic)
        if found is None or number >= len(found.queues):
            return None
        return found.queues[number]

    def queue_met(self, topic: str, number: int) -> Queue | None:
        """Return the queue of a message that the journal holds. Return None if it cannot exist.

        After segments were dropped, a replay may meet messages of a queue whose TOPIC record is
        gone, before the STATE that tells of the queue. Until then the message itself proves that
        the queue exists.
        """
        found = self.queue(topic, number)
        if found is None and self.unsettled and topic and number < QUEUES_MAX:
            known = self.topic(topic, number + 1)
            if not known.has_record:
                self.grow(known, number + 1)
                found = known.queues[number]
        return found

    def grow(self, topic: Topic, queues: int) -> None:
        """Let `topic` have at least `queues` queues."""
        for number in range(len(topic.queues), queues):
            topic.queues.append(queue := Queue(topic, number))
            # In a replay the queue may be old: its first messages were in segments that were
            # dropped.
            queue.is_placed = not self.unsettled

    def acked_of(self, group: str, topic: str, queue: int) -> AckSet:
        """Return the acks of `group` in the queue; an empty set for an unknown group."""
        key = group, topic, queue
        acked = self.acked.get(key)
        if acked is None:
            known = self.queue(topic, queue)
            acked = self.acked[key] = AckSet(0 if known is None else known.first)
        return acked

    def tried_of(self, group: str, topic: str, queue: int) -> AttemptMap:
        """Return the group's attempts in the queue; an empty map for an unknown group."""
        key = group, topic, queue
        tried = self.tried.get(key)
        if tried is None:
            tried = self.tried[key] = AttemptMap()
        return tried

    def subscribe(self, group: str, topic: str) -> Subscription:
        """Return the subscription of `group` to `topic`. Make it if there is none."""
        found = self.subscriptions.get((group, topic))
        if found is None:
            found = self.subscriptions[group, topic] = Subscription(group, topic)
        return found

    def unpaused(self, group: str, topics: tuple[str, ...]) -> tuple[str, ...]:
        """Return those of `topics` of which `group` may be handed messages now."""
        pauses = self.pauses
        if not pauses:
            return topics
        if (group, "") in pauses:
            return ()
        return tuple(topic for topic in topics if ("", topic) not in pauses)

    def pause_of(self, group: str, topic: str) -> Pause | None:
        """Return why `group` is handed nothing of `topic`; None if it is not paused. Without a
        group, look at the topic alone.
        """
        found = self.pauses.get((group, "")) if group else None
        what: Literal["group", "topic"] = "topic" if found is None else "group"
        found = found or self.pauses.get(("", topic))
        if found is None:
            return None
        return Pause(what, found.by, found.reason, as_datetime(found.time_us))

    def limit_of(self, group: str) -> Limit | None:
        """Return what `group` may be handed at most; None if it has no limit."""
        found = self.limits.get(group)
        return None if found is None else Limit(*found[:7], since=as_datetime(found.time_us))

    def raise_first(self, queue: Queue, first: int) -> None:
        """Let `queue` begin at `first`, because retention has dropped the messages before."""
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
        """Return the spans of `queue`. Make them if there are none."""
        if queue.spans is None:
            queue.spans = QueueSpans(self.priorities)
        return queue.spans

    def know_priorities(self, queue: Queue, offset: int, known: bytearray) -> None:
        """Keep the priorities that were read for one span. `known` begins with the message at
        `offset`.
        """
        if queue.spans is not None:
            queue.spans.know(queue.first, offset, known)

    def oldest_undecided(self) -> int | None:
        """Return the position at which the append of the oldest undecided transaction begins; None
        if there is none.
        """
        for entry in self.undecided.values():
            return entry.start
        return None

    def enter_segment(self, base: int) -> None:
        """Note that the next append will lie in the segment at `base`."""
        if base == self.index.base:
            return
        self.sealed.append(self.index)
        self.index = SegmentIndex(base)
        self.index.is_live = self.is_live

    def made_topics(self) -> Iterator[Topic]:
        return (topic for topic in self.topics.values() if topic.has_record)

    def note_replay(self, dead: DeadLetterState, topic: str) -> None:
        """Note that dead letters of `topic` were replayed to their group, which reads them in an
        internal topic.
        """
        dead.again.add(topic)
        name = self.again[dead.group, topic] = replay_topic(dead.group, topic)
        self.subscribe(dead.group, name)

    def dead_letters_of(self, group: str) -> int:
        """Return how many dead letters a group has."""
        dead = self.dead.get(group)
        return 0 if dead is None else dead.count(self.queue(dead.topic, 0))

    def acked_by(self) -> dict[str, dict[str, int]]:
        """Return for each group how many messages of each topic it has acked since the engine was
        opened. Replayed dead letters belong to the topic that they came from.
        """
        found: dict[str, dict[str, int]] = {}
        for (group, topic), subscription in self.subscriptions.items():
            of_group = found.setdefault(group, {})
            if not is_internal(topic):
                again = self.subscriptions.get((group, self.again.get((group, topic), "")))
                of_group[topic] = subscription.acked + (0 if again is None else again.acked)
        return found

    def rejected_by(self, group: str) -> int:
        """Return how many messages of a group have become dead letters since the engine was
        opened.
        """
        dead = self.dead.get(group)
        topic = None if dead is None else self.topics.get(dead.topic)
        return 0 if dead is None or topic is None else topic.sent() - dead.carried_since

    def replayed_of(self, group: str, topic: str) -> list[tuple[int, int]]:
        """Return the dead letters of `topic` that were replayed to a group and are not acked, as
        ranges of offsets of the internal topic.
        """
        name = self.again.get((group, topic))
        queue = None if name is None else self.queue(name, 0)
        if name is None or queue is None:
            return []
        acked = self.acked.get((group, name, 0)) or AckSet(queue.first)
        return [*acked.gaps(queue.first, queue.next)]

    def replayed(self) -> int:
        """Return how many replayed dead letters are not acked, of all groups together."""
        ranges = (each for key in self.again for each in self.replayed_of(*key))
        return sum(end - first for first, end in ranges)

    def is_awaited(self, topic: str) -> bool:
        """Return whether a caller waits for the next message of a topic."""
        known = self.topics.get(topic)
        return bool(known.waiting) if known is not None else topic in self.awaited

    def own_topics(self) -> list[Topic]:
        """Return the topics that callers can see, which are those that are not internal."""
        topics = self.topics.values()
        return [topic for topic in topics if not is_internal(topic.name)]
