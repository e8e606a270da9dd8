"""The records of each kind as plain objects.

`position`, `size` and `flags` are set when a record is placed in the journal, or read from it. This
module does not know how a record is laid out as bytes: forms.py and encoding.py do.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, NamedTuple


class Kind(IntEnum):
    """The kind of a record. The numbers are on disk: never change or reuse one."""

    MESSAGE = 1
    PREPARE = 2
    PRE_MESSAGE = 3
    REF_MESSAGE = 4
    TX_MESSAGE = 5
    COMMIT = 6
    ROLLBACK = 7
    ACK = 8
    STATE = 9
    TOPIC = 10
    MARK = 11
    CHANGE = 12
    TRIED = 13
    TIMER = 14
    IDS = 16
    HOLE = 17
    ERASE = 18
    JOINT = 19


ERASED = 64
"""A bit of the kind of a record on disk: messages of it were erased, see erased_columns.py."""
HAS_ERASED = 256
"""The flag of such a record in memory. Its kind has no bit ERASED there."""

# Plain names for code that runs for every record: a member of an enum is found five times slower.
MESSAGE, PRE_MESSAGE, REF_MESSAGE, TX_MESSAGE = (
    Kind.MESSAGE, Kind.PRE_MESSAGE, Kind.REF_MESSAGE, Kind.TX_MESSAGE
)  # fmt: skip
PREPARE, COMMIT, ACK, TIMER = Kind.PREPARE, Kind.COMMIT, Kind.ACK, Kind.TIMER


class Run:
    """MESSAGE, PRE_MESSAGE, REF_MESSAGE or TX_MESSAGE: consecutive messages of one queue.

    Or TIMER: messages that wait for their time, and get their offsets when they are published.

    content.py makes it of what is sent. Whoever sends it says where it goes (`topic`, `queue`), and
    the plan gives it its place (`offset`, `position`, `time_us`, `target`). decoding.py makes it of
    bytes: then its columns and bodies are not in memory.
    """

    __slots__ = (
        "bodies",
        "bodies_crc",
        "body_position",
        "columns",
        "columns_crc",
        "count",
        "extension",
        "flags",
        "id_keys",
        "ids",
        "kind",
        "offset",
        "position",
        "producer",
        "queue",
        "raw_bytes",
        "size",
        "tail",
        "target",
        "time_us",
        "topic",
        "tx",
        "tx_id",
    )

    def __init__(
        self,
        kind: int,
        count: int,
        bodies: bytes | None = None,
        bodies_crc: int = 0,
        raw_bytes: int = 0,
        flags: int = 0,
        columns: bytes = b"",
    ) -> None:
        self.kind = kind
        self.count = count
        # The bodies as they are stored; None if they are not in memory.
        self.bodies = bodies
        self.bodies_crc = bodies_crc
        self.raw_bytes = raw_bytes
        self.flags = flags
        self.columns = columns
        # `tail` is the end of the head, built when the size is measured, in encoding.py.
        self.extension = self.tail = b""
        # Of a REF_MESSAGE, `body_position` is the position of its PRE_MESSAGE.
        self.tx = self.queue = self.offset = self.body_position = self.columns_crc = self.size = 0
        self.tx_id = self.producer = ""
        # None: the extension has the ids, if there are any.
        self.ids: Sequence[str | None] | None = None

    topic: str
    position: int
    time_us: int
    target: Any  # the Queue of the ledger that the plan has found; None in a replay
    id_keys: Any  # the keys of the ids in index tables; set at the first use, in id_table.py


class AckRange:
    """Messages of one queue that a group has acked: from `first` up to, not including, `end`."""

    __slots__ = ("end", "first", "group", "queue", "topic")

    def __init__(self, group: str, topic: str, queue: int, first: int, end: int) -> None:
        self.group = group
        self.topic = topic
        self.queue = queue
        self.first = first
        self.end = end

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AckRange) and self.key() == other.key()

    __hash__ = None  # type: ignore[assignment]

    def joined(self, following: AckRange) -> AckRange | None:
        """Return both as one range if `following` begins where this one ends, else None."""
        if following.first != self.end or following.key()[:3] != self.key()[:3]:
            return None
        return AckRange(self.group, self.topic, self.queue, self.first, following.end)

    def key(self) -> tuple[str, str, int, int, int]:
        return self.group, self.topic, self.queue, self.first, self.end


class Prepare:
    """PREPARE: states and seals the PRE_MESSAGEs after it, and its acks.

    In journals of the first fmq, TX_MESSAGEs may follow it, with their COMMIT in the same append.
    """

    kind = Kind.PREPARE
    __slots__ = (
        "acks",
        "bound",
        "bytes",
        "check_after_ms",
        "extension",
        "flags",
        "kept_bytes",
        "marks",
        "messages",
        "position",
        "prepared_us",
        "producer",
        "records",
        "replaces",
        "reserved",
        "seal",
        "size",
        "tail",
        "time_us",
        "tx",
        "tx_id",
    )

    def __init__(
        self,
        tx_id: str,
        producer: str,
        time_us: int,
        records: int,
        messages: int,
        size_bytes: int,
        seal: bytes,
        acks: Sequence[AckRange] = (),
        *,
        tx: int = 0,
        prepared_us: int = 0,
        replaces: int = 0,
        check_after_ms: int = -1,
    ) -> None:
        self.tx_id = tx_id
        self.producer = producer
        self.time_us = time_us
        self.records = records
        self.messages = messages
        self.bytes = size_bytes
        self.seal = seal
        self.acks = tuple(acks)
        # The position of the transaction's first PREPARE; 0: this PREPARE is the first.
        self.tx = tx
        self.prepared_us = prepared_us or time_us
        self.replaces = replaces  # in a relocation: the position of the PREPARE that it replaces
        self.check_after_ms = check_after_ms
        # True if the transaction is bound to a database, which has its marker once both have
        # committed.
        self.bound = False
        self.marks: tuple[MarkChange, ...] = ()  # the changes of the MARK in the same append
        self.reserved = 0  # bytes set aside for what the transaction may still have to write
        # Bytes of the transaction's messages that stay in memory until its decision.
        self.kept_bytes = 0
        self.position = 0
        self.size = 0
        self.flags = 0
        self.extension = b""

    tail: bytes  # set when the size is measured, as the tail of a Run is


class Decided:
    """COMMIT or ROLLBACK, with all that an outcome says."""

    __slots__ = (
        "append_start",
        "asked",
        "bytes",
        "decided_by",
        "extension",
        "flags",
        "kind",
        "messages",
        "position",
        "prepared_us",
        "producer",
        "reason",
        "records",
        "seal",
        "size",
        "tail",
        "time_us",
        "tx",
        "tx_id",
    )

    def __init__(
        self,
        kind: Kind,
        tx: int,
        tx_id: str,
        producer: str,
        time_us: int,
        prepared_us: int,
        records: int,
        messages: int,
        size_bytes: int,
        seal: bytes,
        decided_by: str = "",
        reason: str = "",
        append_start: int = 0,
        asked: int = 0,
    ) -> None:
        self.kind = kind
        self.tx = tx
        self.tx_id = tx_id
        self.producer = producer
        self.time_us = time_us
        self.prepared_us = prepared_us
        self.records = records
        self.messages = messages
        self.bytes = size_bytes
        self.seal = seal
        self.decided_by = decided_by
        self.reason = reason
        self.append_start = append_start  # the position at which its append begins
        self.asked = asked  # how many questions about the transaction were answered
        self.position = 0
        self.size = 0
        self.flags = 0
        self.extension = b""

    tail: bytes  # set when the size is measured, as the tail of a Run is


class Acks:
    """ACK: ranges that groups have acked, alone (tx 0) or as part of a transaction."""

    kind = Kind.ACK
    __slots__ = ("extension", "flags", "position", "ranges", "size", "tail", "time_us", "tx")

    def __init__(self, ranges: Sequence[AckRange], time_us: int, tx: int = 0) -> None:
        self.ranges = tuple(ranges)
        self.time_us = time_us
        self.tx = tx
        self.position = 0
        self.size = 0
        self.flags = 0
        self.extension = b""


class TriedRange(NamedTuple):
    """Messages of one queue that a group has tried, from `first` up to, not including, `end`."""

    group: str
    topic: str
    queue: int
    first: int
    end: int
    tries: int  # how often each message was tried, this time included
    # When the messages may be tried again, if they were given back until a time; else 0.
    due_us: int = 0


class Tried:
    """TRIED: how often groups have tried messages, as of now."""

    kind = Kind.TRIED
    __slots__ = ("extension", "flags", "position", "ranges", "size", "tail", "time_us")

    def __init__(self, ranges: Sequence[TriedRange], time_us: int = 0) -> None:
        self.ranges = tuple(ranges)
        self.time_us = time_us
        self.position = 0
        self.size = 0
        self.flags = 0
        self.extension = b""


class MarkChange(NamedTuple):
    """What a transaction does with one mark. `data` is None if it removes the mark."""

    name: str
    value: int
    data: bytes | None


class Marks:
    """MARK: the marks that a transaction sets or removes."""

    kind = Kind.MARK
    __slots__ = ("changes", "extension", "flags", "position", "size", "tail", "time_us", "tx")

    def __init__(self, changes: Sequence[MarkChange], time_us: int, tx: int = 0) -> None:
        self.changes = tuple(changes)
        self.time_us = time_us
        self.tx = tx
        self.position = 0
        self.size = 0
        self.flags = 0
        self.extension = b""


class ChangeKind(IntEnum):
    """What a CHANGE changes. The numbers are on disk: never change or reuse one."""

    MAKE_GROUP = 1
    SEEK = 2
    SKIP = 3
    FILTER = 4
    DELETE_GROUP = 5
    ADD_QUEUES = 6
    RETAIN = 7
    TRIM = 8
    DELETE_TOPIC = 9
    BEGIN_DEAD = 10
    END_DEAD = 11
    FIRE = 12  # ends timers; the MESSAGEs before it in the append publish them
    RECALL = 13  # ends a timer without publishing it
    PAUSE = 14
    RESUME = 15
    CONFIGURE = 16  # `text` has options of the directory, as JSON
    SCHEDULE = 17  # `text` has the schedule as JSON, `value` when it is due next
    DUE = 18  # a schedule's MESSAGE follows in the append; `value` is when it is due next
    UNSCHEDULE = 19
    LIMIT = 20  # `text` has what the group may be handed at most, as JSON
    CODEC = 21  # `text` has how the bodies of the topic are made, as JSON


class QueuePlace(NamedTuple):
    """An offset in a queue of a topic that the record names."""

    queue: int
    offset: int


class Changed:
    """CHANGE: a change of a group, a topic or the directory's options that a call has made, outside
    of any transaction.
    """

    kind = Kind.CHANGE
    __slots__ = (
        *("asked", "extension", "flags", "group", "places", "position", "size", "tail", "text"),
        *("time_us", "topic", "value"),
    )

    def __init__(
        self,
        asked: int,
        group: str,
        topic: str,
        places: Sequence[QueuePlace] = (),
        value: int = 0,
        text: str = "",
        time_us: int = 0,
    ) -> None:
        self.asked = asked
        self.group = group  # "" if the change is about a topic alone
        # "" if it is about all topics of the group, or about the directory
        self.topic = topic
        self.places = tuple(places)
        self.value = value
        self.text = text
        self.time_us = time_us
        self.position = 0
        self.size = 0
        self.flags = 0
        self.extension = b""


class Carryover:
    """STATE: what must outlive the segments that retention drops, as JSON."""

    kind = Kind.STATE
    __slots__ = ("extension", "flags", "json", "position", "size", "tail", "time_us")

    def __init__(self, json: bytes, time_us: int) -> None:
        self.json = json
        self.time_us = time_us
        self.position = 0
        self.size = 0
        self.flags = 0
        self.extension = b""


class IdsKept:
    """IDS: the message ids of segments that retention drops, as id_table.py has them."""

    kind = Kind.IDS
    __slots__ = ("extension", "flags", "position", "size", "tail", "table", "time_us")

    def __init__(self, table: bytes, time_us: int) -> None:
        self.table = table
        self.time_us = time_us
        self.position = 0
        self.size = 0
        self.flags = 0
        self.extension = b""


class TopicMade:
    """TOPIC: a topic was made, with its number of queues."""

    kind = Kind.TOPIC
    __slots__ = ("extension", "flags", "position", "queues", "size", "tail", "time_us", "topic")

    def __init__(self, topic: str, queues: int, time_us: int) -> None:
        self.topic = topic
        self.queues = queues
        self.time_us = time_us
        self.position = 0
        self.size = 0
        self.flags = 0
        self.extension = b""


class Hole:
    """HOLE: records that were damaged lay here, and a salvage has left them out."""

    kind = Kind.HOLE
    __slots__ = ("content", "extension", "flags", "position", "size", "tail", "time_us")

    def __init__(self, content: bytes, time_us: int) -> None:
        # The damaged bytes. The first ones are missing: the head of this record is in their place.
        self.content = content
        self.time_us = time_us
        self.position = 0
        self.size = 0
        self.flags = 0
        self.extension = b""


class Erasure:
    """ERASE: messages that were erased, each in the place where it lies."""

    kind = Kind.ERASE
    __slots__ = (
        *("extension", "flags", "number", "position", "ranges", "segments", "size", "tail"),
        "time_us",
    )

    def __init__(
        self, number: int, ranges: Sequence[AckRange], segments: Sequence[int], time_us: int
    ) -> None:
        self.number = number  # drawn, so that one erasure is recorded once
        self.ranges = tuple(ranges)  # their `group` is ""
        self.segments = tuple(segments)  # the bases of the segments that were written to
        self.time_us = time_us
        self.position = 0
        self.size = 0
        self.flags = 0
        self.extension = b""


class Joint:
    """JOINT: one decision over many prepared transactions. Their endings follow it at once, each an
    append of its own, in the order of `transactions`.
    """

    kind = Kind.JOINT
    __slots__ = (
        *("decision", "extension", "flags", "marks", "position", "size", "tail", "time_us"),
        "transactions",
    )

    def __init__(
        self,
        decision: int,
        marks: Sequence[MarkChange],
        transactions: Sequence[int],
        time_us: int = 0,
    ) -> None:
        self.decision = decision  # the kind of their endings: COMMIT or ROLLBACK
        self.marks = tuple(marks)  # what moves with the decision: one mark, or none
        self.transactions = tuple(transactions)  # their numbers
        self.time_us = time_us
        self.position = 0
        self.size = 0
        self.flags = 0
        self.extension = b""


Record = (
    Run | Prepare | Decided | Acks | Tried | Marks | Changed | Carryover | IdsKept | TopicMade
    | Hole | Erasure | Joint
)  # fmt: skip
Append = list[Any]
"""Records that are applied and written as one piece. The running engine makes appends, and a replay
decodes them. Both apply them by tx/ledger/apply.py."""
