"""The kinds that a table row describes fully: their fields, their size, how they are written, read
and shown.

    common | numbers | counts | parts          | bodies
    head of all kinds,         each in its turn  if the row names one

A row is a `Form`. It names the numbers that its kind adds to the head of all kinds; then its
parts, each with a count in the head: a text has as many bytes, a list has as many values; and the
attribute that is the bodies, if there is one. The names are those of the record's class.

Counts and parts are put together when the record is measured: `tail`. So nothing but the numbers
is left to be written under the lock, and nothing else may change after that.

Not here, but written out in encoding.py and decoding.py:

- MESSAGE, PRE_MESSAGE, REF_MESSAGE, TX_MESSAGE and TIMER: their columns have a code of their own,
  and names and columns are shared by many records;
- PREPARE: its `tx` is its own position unless it says otherwise, it has a flag of its own, and its
  acks are counted first and come last;
- COMMIT and ROLLBACK: two kinds of one class, one in each transaction, too often for a loop.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from operator import attrgetter
from struct import Struct
from struct import error as StructError
from typing import Any, NamedTuple
from zlib import crc32

from fmq.basics.clock import as_datetime
from fmq.errors import IllegalRecord
from fmq.store.bytes.internal import shown
from fmq.store.bytes.kinds import (
    AckRange,
    Acks,
    Carryover,
    Changed,
    Erasure,
    Hole,
    IdsKept,
    Joint,
    MarkChange,
    Marks,
    QueuePlace,
    TopicMade,
    Tried,
    TriedRange,
)
from fmq.store.bytes.record import (
    ACK_RANGE,
    CHANGE_PLACE,
    COMMON,
    MARK_FRONT,
    PREFIX_BYTES,
    QUEUE_FRONT,
    TRIED_RANGE,
    U64,
    utf8,
)

COMMON_FORMAT = COMMON.format.removesuffix("H") + "2x"  # the fields of all kinds, without the queue


class Value(NamedTuple):
    """How one value of a list is encoded, decoded and shown. `decode` also returns the index of its
    end.
    """

    name: str
    """What people call the list."""
    encode: Callable[[Any], bytes]
    decode: Callable[[bytes, int], tuple[Any, int]]
    say: Callable[[Any], dict[str, Any]]


class Form:
    """A row of the table: the fields of one kind, in their order."""

    def __init__(
        self, make: Any, numbers: str, *, bodies: str = "", **parts: tuple[str, Value | None]
    ) -> None:
        """`numbers` are `name:code`, or a code alone for zeros. The codes are those of struct.

        A part is the code of its count, and how its values are written; None for a text.
        """
        self.kind, self.bodies, self._make = make.kind, bodies, make
        fields = [field.rpartition(":") for field in numbers.split()]
        names = [name for name, _, _ in fields if name]
        codes = "".join(code for _, _, code in fields)
        counts = "".join(code for code, _ in parts.values())
        self.front = Struct(COMMON_FORMAT + codes)
        self.counts = Struct("<" + counts)
        self._own = Struct("<" + codes + counts)
        self._numbers = attrgetter("kind", "flags", *names)
        self._names = (*names, *parts)
        self._parts = [(name, value) for name, (_, value) in parts.items()]
        self._written = [(name, value and value.encode) for name, value in self._parts]
        self._front_bytes = PREFIX_BYTES + self.front.size
        self._pack_front, self._pack_counts = self.front.pack, self.counts.pack

    def size(self, record: Any) -> int:
        """Return the size of `record`, and build its tail. Needs no lock.

        Raises IllegalRecord if a field cannot hold what the record says.
        """
        counts: list[int] = []
        written: list[bytes] = []
        try:
            for name, encode in self._written:
                part = getattr(record, name)
                if encode is not None:
                    written += map(encode, part)
                elif part:
                    part = part.encode()
                    written.append(part)
                counts.append(len(part))
            record.tail = tail = b"".join((self._pack_counts(*counts), *written, record.extension))
        except (StructError, ValueError) as error:
            raise IllegalRecord(self.kind, str(error)) from error
        size = self._front_bytes + len(tail)
        if self.bodies:
            size += len(getattr(record, self.bodies))
        record.size = size
        return size

    def encode(self, record: Any, lag: int) -> tuple[bytes, bytes]:
        """Return the head of a record and its bodies. Measure it if it has no size."""
        size = head_size = record.size or self.size(record)
        bodies, crc = b"", 0
        if self.bodies:
            bodies = getattr(record, self.bodies)
            head_size, crc = size - len(bodies), crc32(bodies)
        front = self._pack_front(size, head_size, record.position, lag, crc, *self._numbers(record))
        return front + record.tail, bodies

    def decode(self, data: bytes, at: int, head_end: int, kind: int, flags: int) -> Any:
        """Return the record without its bodies. Its own fields begin at `data[at]`."""
        said = dict(zip(self._names, self._own.unpack_from(data, at), strict=True))
        at += self._own.size
        for name, value in self._parts:
            if value is None:
                end = at + said[name]
                said[name], at = data[at:end].decode(), end
            else:
                said[name], at = values_in(data, at, head_end, said[name], value)
        if at > head_end:
            raise IndexError("its parts are cut short")
        if self.bodies:
            said[self.bodies] = b""
        return self._make(**said)

    def say(self, record: Any) -> dict[str, Any]:
        """Return for people what `record` says, without its time and its transaction."""
        said: dict[str, Any] = {}
        for name in self._names:
            if name not in ("tx", "time_us"):
                value = getattr(record, name)
                said[name] = shown(value) or None if isinstance(value, str) else value
        for name, value in self._parts:
            if value is not None:
                said[value.name] = [value.say(each) for each in said.pop(name)]
        return said | {"bytes": len(getattr(record, self.bodies))} if self.bodies else said


def values_in(data: bytes, at: int, end: int, count: int, value: Value) -> tuple[list[Any], int]:
    """Return `count` values from `data[at]` on, and the index of their end, which is at most
    `end`.
    """
    found = []
    for _ in range(count):
        each, at = value.decode(data, at)
        if at > end:
            raise IndexError("its values are cut short")
        found.append(each)
    return found, at


# --- values --------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def ack_names_of(group: str, topic: str, queue: int) -> bytes:
    """Return the encoded ack without its range. Cached, as there are few groups and queues."""
    names = group.encode(), topic.encode()
    return QUEUE_FRONT.pack(*map(len, names), queue) + b"".join(names)


def _names_at(data: bytes, at: int) -> tuple[str, str, int, int]:
    """Return group, topic and queue at `data[at]`, and the index of their end."""
    group_size, topic_size, queue = QUEUE_FRONT.unpack_from(data, at)
    at += QUEUE_FRONT.size
    middle = at + group_size
    end = middle + topic_size
    return text_of(data[at:middle]), text_of(data[middle:end]), queue, end


@lru_cache(maxsize=4096)
def text_of(data: bytes) -> str:
    """Return a name as str. Cached, because a few names are used all the time."""
    return data.decode()


def encode_ack(ack: AckRange) -> bytes:
    """Return one ack as bytes, for an ACK or a PREPARE."""
    return ack_names_of(ack.group, ack.topic, ack.queue) + ACK_RANGE.pack(ack.first, ack.end)


def _decode_ack(data: bytes, at: int) -> tuple[AckRange, int]:
    group, topic, queue, at = _names_at(data, at)
    return AckRange(group, topic, queue, *ACK_RANGE.unpack_from(data, at)), at + ACK_RANGE.size


def _say_ack(ack: AckRange) -> dict[str, Any]:
    group, topic, queue, first, end = ack.key()
    names = {"group": shown(group), "topic": shown(topic)}
    return names | {"queue": queue, "first": first, "end": end}


def _encode_try(tried: TriedRange) -> bytes:
    return ack_names_of(*tried[:3]) + TRIED_RANGE.pack(*tried[3:])


def _decode_try(data: bytes, at: int) -> tuple[TriedRange, int]:
    group, topic, queue, at = _names_at(data, at)
    found = TriedRange(group, topic, queue, *TRIED_RANGE.unpack_from(data, at))
    return found, at + TRIED_RANGE.size


def _say_try(tried: TriedRange) -> dict[str, Any]:
    said = tried._asdict() | {"group": shown(tried.group), "topic": shown(tried.topic)}
    due_us = said.pop("due_us")
    return said | {"due": as_datetime(due_us) if due_us else None}


def encode_mark(change: MarkChange) -> bytes:
    """Return one mark as bytes, for a MARK: the size of its data first, its data last."""
    name, data = utf8(change.name), change.data or b""
    return (
        MARK_FRONT.pack(change.data is not None, change.value, len(data), len(name)) + name + data
    )


def _decode_mark(data: bytes, at: int) -> tuple[MarkChange, int]:
    is_set, value, data_size, name_size = MARK_FRONT.unpack_from(data, at)
    at += MARK_FRONT.size
    middle = at + name_size
    end = middle + data_size
    return MarkChange(text_of(data[at:middle]), value, data[middle:end] if is_set else None), end


def _say_mark(change: MarkChange) -> dict[str, Any]:
    data = None if change.data is None else change.data.hex()
    return {"name": shown(change.name), "value": change.value, "data": data}


def _encode_place(place: QueuePlace) -> bytes:
    return CHANGE_PLACE.pack(*place)


def _decode_place(data: bytes, at: int) -> tuple[QueuePlace, int]:
    return QueuePlace(*CHANGE_PLACE.unpack_from(data, at)), at + CHANGE_PLACE.size


def _say_range(erased: AckRange) -> dict[str, Any]:
    return {name: value for name, value in _say_ack(erased).items() if name != "group"}


def _decode_number(data: bytes, at: int) -> tuple[int, int]:
    return U64.unpack_from(data, at)[0], at + U64.size


ACK = Value("acks", encode_ack, _decode_ack, _say_ack)
TRY = Value("tries", _encode_try, _decode_try, _say_try)
RANGE = Value("ranges", encode_ack, _decode_ack, _say_range)
SEGMENT = Value("segments", U64.pack, _decode_number, lambda base: {"base": base})
TX = Value("transactions", U64.pack, _decode_number, lambda tx: {"tx": tx})
MARK = Value("marks", encode_mark, _decode_mark, _say_mark)
PLACE = Value("places", _encode_place, _decode_place, QueuePlace._asdict)
NAME = "B", None
LONG_TEXT = "I", None

FORMS = {
    form.kind: form
    for form in (
        Form(Acks, "tx:Q time_us:q", ranges=("I", ACK)),
        Form(Tried, "8x time_us:q", ranges=("I", TRY)),
        Form(Marks, "tx:Q time_us:q", changes=("I", MARK)),
        Form(
            Changed, "8x time_us:q asked:B value:Q",
            group=NAME, topic=NAME, places=("H", PLACE), text=LONG_TEXT,
        ),
        Form(TopicMade, "8x time_us:q queues:H", topic=NAME),
        Form(Carryover, "8x time_us:q", bodies="json"),
        Form(IdsKept, "8x time_us:q", bodies="table"),
        Form(Hole, "8x time_us:q", bodies="content"),
        Form(Erasure, "8x time_us:q number:Q", ranges=("I", RANGE), segments=("I", SEGMENT)),
        Form(Joint, "8x time_us:q decision:B", marks=("B", MARK), transactions=("I", TX)),
    )
}  # fmt: skip
"""The row of each kind that has one."""
