"""What an engine returns about transactions, queues and groups. All are frozen dataclasses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, NamedTuple

from fmq.basics.clock import as_us
from fmq.basics.message import Message, Origin, Receipt

OutcomeState = Literal["undecided", "committed", "rolled back"]
HeldState = Literal["held", "transaction", "waits", "behind", "reserved"]
OutReason = Literal["left", "disconnected", "silent", "put out", "replaced"]


@dataclass(frozen=True, slots=True)
class UndecidedTransaction:
    """A transaction that was prepared and not decided yet."""

    tx_id: str
    producer: str | None
    prepared_at: datetime
    messages: int
    bytes: int
    topics: tuple[str, ...]
    position: int
    seal: str
    answers: int = 0
    """How many answers about it were "unknown"."""
    parked: bool = False
    """No checker is asked until a person decides or `engine.feedback.resume` is called."""
    bound: bool = False
    """It is bound to its producer's database, which alone knows how it ended."""


@dataclass(frozen=True, slots=True)
class HomeStats:
    """What an engine knows of its home: `engine.stats().home`."""

    address: str
    owner: str
    """Which process took it over last, as far as this engine knows: itself, unless it was
    fenced."""
    serves_at: str | None
    """The address at which it serves other machines."""
    term: int
    """How often the home was taken over."""
    floor: int
    """The number below which entries may be gone."""
    lag: int
    """Entries above the floor: a machine with an empty directory reads them one by one."""
    lag_bytes: int
    entries: int
    """All that were ever made."""
    bytes: int
    """Of the journal in the home."""
    latency: float
    """Seconds until the home acknowledges an entry, on average over the last ones."""


@dataclass(frozen=True, slots=True)
class JointDecision:
    """One decision over many transactions, by `engine.decide_many`."""

    number: int
    """All of its transactions have this number, and no others."""
    transactions: int
    mark: str | None = None
    """The mark that moved with it, and its new value."""
    value: int | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a transaction, or what is known so far of an undecided one."""

    tx_id: str
    state: OutcomeState
    producer: str | None
    prepared_at: datetime
    messages: int
    """How many it published, or would publish if it is undecided. 0 if it was rolled back."""
    bytes: int
    """The size of its messages when it was prepared, even if it was rolled back."""
    seal: str
    decided_at: datetime | None = None
    decided_by: str | None = None
    reason: str | None = None
    position: int | None = None
    receipts: tuple[Receipt, ...] = ()
    asked: int = 0
    """How many times a question about it was answered since the engine was opened."""
    joint: JointDecision | None = None
    """Which decision it shares with others; None if it was decided alone."""


@dataclass(frozen=True, slots=True)
class Pause:
    """A pause of a group, of a topic for all its groups, or of a schedule. Until its end the group
    is handed nothing, or the schedule publishes nothing.
    """

    of: Literal["group", "topic", "schedule"]
    by: str
    """Who has paused it."""
    reason: str
    since: datetime


@dataclass(frozen=True, slots=True)
class Limit:
    """How much a group may be handed, by all of its members together. None: as much as there is."""

    concurrency: int | None = None
    """So many messages in hand at once."""
    rate: float | None = None
    """So many messages a second."""
    concurrency_by_key: int | None = None
    """So many messages of one key in hand at once."""
    rate_by_key: float | None = None
    """So many messages of one key a second."""
    fair: bool = False
    """Whether keys take turns, so that a long backlog of one does not hold up the others."""
    by: str = ""
    """Who has set it."""
    reason: str = ""
    since: datetime | None = None

    def in_words(self) -> str:
        """Return the limit as people say it: "3 at once, keys take turns"."""
        parts = []
        if self.concurrency is not None:
            parts.append(f"{self.concurrency:,} at once")
        if self.rate is not None:
            parts.append(f"{self.rate:g} a second")
        if self.concurrency_by_key is not None:
            parts.append(f"{self.concurrency_by_key:,} of a key at once")
        if self.rate_by_key is not None:
            parts.append(f"{self.rate_by_key:g} of a key a second")
        if self.fair or self.concurrency_by_key or self.rate_by_key:
            parts.append("keys take turns")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class ScheduleInfo:
    """A schedule at one instant: a message that is published again and again."""

    name: str
    cron: str
    """When, as `engine.schedule` was told."""
    timezone: str
    topic: str
    next: datetime | None
    """When it is due next. None if its expression names no further time. While it is paused it is
    not published then."""
    last: datetime | None
    """The last due time that was published."""
    missed: str
    """What becomes of times that passed while no engine ran: "once" or "skip"."""
    by: str
    """Who has made it."""
    body: bytes
    key: str | None = None
    tag: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    paused: Pause | None = None


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """One queue at one instant: messages from `first` up to, not including, `next`."""

    topic: str
    queue: int
    first: int
    next: int
    paused: Pause | None = None
    """Of its topic."""


@dataclass(frozen=True, slots=True)
class TopicCodec:
    """How the bodies of a topic are made, as its directory stores it."""

    name: str
    """The name of the codec, such as "json"."""
    version: int = 1
    """Of the newest codec that a program has named."""
    fields: Mapping[str, str] | None = None
    """The fields of a body that is a JSON object, each with the kinds of JSON that it may be, such
    as "integer" or "null|string". None if they are not known."""


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """What a group has acked in one queue, at one instant. Only durable acks count."""

    group: str
    topic: str
    queue: int
    acked_below: int
    """Every message below this offset is acked or was dropped by retention."""
    acked_beyond: int
    """How many messages above `acked_below` are acked."""
    unread: int
    """How many messages of the queue are not acked, those that are delivered included. In the first
    queue of a topic also `replayed`. It is no count of what will be delivered: messages that
    consumers will pass over, because of the `filter` or because they expire, are in it until a
    poll has come to them."""
    behind_seconds: float = field(default=0.0, compare=False)
    """How long ago the oldest of these was sent."""
    oldest: datetime | None = field(default=None, compare=False)
    """When that was."""
    lost: int = 0
    """How many messages of the topic retention has taken before the group acked them."""
    skipped: int = 0
    """How many messages of the topic somebody has passed over, by `group.skip` or a `seek`."""
    dead_letters: int = 0
    """How many dead letters the group has, of all its topics."""
    expired: int = 0
    """How many messages of the topic had expired before the group got them."""
    replayed: int = 0
    """How many dead letters of the topic were replayed and are not acked. Members compete for them,
    so all are counted in the first queue of the topic, whichever queues they came from."""
    filter: str = ""
    """Which messages of the topic the group wants, as "tags:..." or "sql:..."; "" for all. Which of
    `unread` match it nobody knows before a poll has read them."""
    paused: Pause | None = None
    """Of the group, or else of the topic."""
    limit: Limit | None = None
    """Of the group, in all its topics together."""
    members: int | None = field(default=None, compare=False)
    """How many members the group has. This and `in_hand` only the engine's process knows; None if
    nobody has asked it."""
    in_hand: int | None = field(default=None, compare=False)
    """How many of `unread` a member or a transaction holds."""


@dataclass(frozen=True, slots=True)
class MemberInfo:
    """A member of a group, at one instant."""

    name: str
    topics: tuple[str, ...]
    owns: tuple[tuple[str, int], ...]
    """The queues that belong to it, as pairs of topic and number. Without a strategy no queue
    belongs to anybody."""
    strategy: str | None
    seen_seconds: float
    """How long ago it polled, acked or extended. 0 for one that waits in a poll."""
    host: str | None = None
    """The machine on which it runs, as that names itself."""
    pid: int | None = None
    address: str | None = None
    """The address and port of its client, over TCP."""


@dataclass(frozen=True, slots=True)
class FormerMember:
    """A member that is out of its group. One of the same name may be in it again."""

    name: str
    topics: tuple[str, ...]
    out_at: datetime
    why: OutReason
    """"left": its program has closed it. "disconnected": the connection of its client has ended,
    as that of a process that was killed.
    "silent": it made no call for `member_timeout_seconds`. "put out": by a person. "replaced":
    another consumer has joined under its name."""
    held: int
    """How many messages it held, which went to others."""
    host: str | None = None
    """The machine on which it ran, as that names itself."""
    pid: int | None = None
    address: str | None = None
    """The address and port of its client, over TCP."""
    by: str | None = None
    """Who has put it out."""
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class HeldMessages:
    """Messages of one queue that a group has in hand, or that wait for their next attempt: `count`
    of them from `offset` on. They were handed out or given back together.
    """

    topic: str
    queue: int
    offset: int
    count: int
    state: HeldState
    """"held": by `member`, until its lease ends. "transaction": until one that acks them ends.
    "waits": for the next attempt. "behind": another message of its key. "reserved": for clients of
    a server that was killed, which may have them."""
    attempt: int
    """How often each was tried, this time included. 0: the program has not seen them yet."""
    member: str | None = None
    host: str | None = None
    """The machine of `member`."""
    pid: int | None = None
    address: str | None = None
    """The address and port of the member's client, over TCP."""
    tx_id: str | None = None
    """The prepared transaction that acks them."""
    since: datetime | None = None
    """When the member has polled them."""
    until: datetime | None = None
    """When the lease ends, or the next attempt may come. None: there is no such time, or the next
    poll brings them."""
    replayed: bool = False
    """They are dead letters that were replayed. Then `offset` is a place among those of the
    topic."""


@dataclass(frozen=True, slots=True)
class ClientInfo:
    """A client that is connected to the process of the engine, at one instant."""

    id: str
    """Drawn by the client. It stays the same when the client connects again."""
    host: str
    """The machine on which it runs, as that names itself."""
    pid: int
    address: str | None
    """Its address and port, over TCP."""
    since: datetime
    """When it has connected."""
    calls: int
    """How many requests it has made since then."""
    calls_per_second: float = field(compare=False)
    """Since `clients` was last called, by any caller, or since the client has connected."""
    waiting: int
    """How many of its requests wait for messages."""
    members: tuple[tuple[str, str], ...]
    """Its consumers, as pairs of group and member."""
    transactions: tuple[str, ...]
    """The tx_ids that its open transactions hold."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that a group has rejected, or tried too often."""

    number: int
    """Names it within its group, and stays as it is. A later one has a larger number."""
    body: bytes = field(repr=False)
    key: str | None
    tag: str | None
    headers: dict[str, str] | None
    topic: str
    """Where the message was, as are the next three."""
    queue: int
    offset: int
    time: datetime
    """When the message was sent."""
    died_at: datetime
    attempts: int
    """How often it was tried; 0 if that was not counted."""
    reason: str
    tx_id: str | None = None
    producer: str | None = None
    position: int = field(default=0, repr=False)
    message_id: str | None = None
    priority: int | None = None
    expires_at: datetime | None = None

    @property
    def message(self) -> Message:
        """The message as it was where it failed."""
        origin = Origin(
            self.topic, self.queue, self.position, as_us(self.time), self.tx_id, self.producer
        )
        return Message(
            *(self.body, self.key, self.tag, self.headers, self.offset, origin),
            message_id=self.message_id,
            priority=self.priority,
            expires_at=self.expires_at,
        )


class Erased(NamedTuple):
    """What `engine.erase` has done."""

    messages: int
    """How many messages were erased that readers could see."""
    records: int
    """How many records of the journal were overwritten, copies and what was prepared included."""


@dataclass(frozen=True, slots=True)
class Settled:
    """What `engine.settle` did about each transaction that was undecided. Each field lists ids of
    transactions.
    """

    committed: tuple[str, ...]
    rolled_back: tuple[str, ...]
    unknown: tuple[str, ...]
    """A checker was asked, and the transaction is still undecided."""
    unasked: tuple[str, ...]
    """No answer came: parked, or without a registered checker, or the time ran out."""
