"""One journal record, as bytes.

    offset  size  field
         0     4  magic        b"fmq" and the version of the format, 1
         4     4  head_crc     CRC-32 of the head from here on, seeded with the store
         8     4  size         length of the whole record, padding left out
        12     4  head_size    where the bodies begin
        16     8  position     the record's own address in the journal
        24     4  durable_lag  position - durable_to, as it was when this was written
        28     4  bodies_crc   CRC-32 of the bodies as they are stored
        32     1  kind         see Kind
        33     1  flags        FIRST, LAST, and those of columns.py
        34     2  queue        number of the queue, 0 where there is none
        36     *  what its kind adds, then the columns
 head_size     *  the bodies, in one piece

What the kinds add ("text" is UTF-8 whose length stands in a byte before):

    MESSAGE                    place
    PRE_MESSAGE  TX_MESSAGE    u64 tx, place
    REF_MESSAGE                u64 tx, place, u64 position of its PRE_MESSAGE
    PREPARE                    u64 tx, see PREPARE_HEAD, names, acks
    COMMIT  ROLLBACK           u64 tx, see DECISION_HEAD, names
    ACK                        u64 tx (0: none), i64 time, u32 acks, acks
    STATE                      u64 tx (0), i64 time; the bodies are JSON
    TOPIC                      u64 tx (0), i64 time, u16 queues, text: the name

    place  u64 first offset, i64 time (microseconds since 1970), u32 messages, three bytes:
           lengths of topic, producer and tx_id, these three; then, only with the flag
           COMPRESSED, u32 size of the bodies once decompressed

Integers are little-endian. A record begins at a multiple of 8, with zeros between. The
records of one append lie one after the other; the first has the flag FIRST and the last LAST.
The checksum covers size, kind and position and the bodies' own checksum, so a flipped bit
anywhere is noticed; sound bytes in the wrong place are refused by their position, sound bytes
of another store by the seed.

This module turns records into bytes and back. It knows nothing about files.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import lru_cache
from struct import Struct
from struct import error as StructError

from fmq.store.columns import COMPRESSED, COUNT_MAX, Columns, Content
from fmq.store.kinds import AckRange, Acks, Decided, Kind, Prepare, Record, Run, State, TopicMade

FORMAT = 1
MAGIC = b"fmq\x01"
ALIGNMENT = 8

FIRST = 1
LAST = 2

PREFIX = Struct("<4sI")
COMMON = Struct("<IIQIIBBH")
PLACE = Struct("<QqIBBB")
MESSAGE_HEAD = Struct("<IIQIIBBHQqIBBB")
TX_HEAD = Struct("<IIQIIBBHQQqIBBB")
PREPARE_HEAD = Struct("<QqqQIIQ16sqIBB")
DECISION_HEAD = Struct("<QqqQIIQ16sIBBBH")
TIME_HEAD = Struct("<Qq")
ACK_RANGE = Struct("<QQ")
U64 = Struct("<Q")
U32 = Struct("<I")
U16 = Struct("<H")

PREFIX_BYTES = PREFIX.size
HEAD_BYTES_MIN = PREFIX.size + COMMON.size
assert HEAD_BYTES_MIN == 36, "the table above counts on it"
assert MESSAGE_HEAD.size == COMMON.size + PLACE.size
assert TX_HEAD.size == MESSAGE_HEAD.size + 8

RECORD_BYTES_MAX = 1 << 31
LAG_UNKNOWN = 0xFFFFFFFF
NO_SEAL = bytes(16)
PADDING = tuple(bytes(-size % ALIGNMENT) for size in range(ALIGNMENT))


class BadRecord(Exception):
    """The bytes are no sound record. Whether they are torn or damaged is not known here."""


class Misplaced(Exception):
    """A sound record that belongs elsewhere."""

    def __init__(self, position: int) -> None:
        super().__init__(f"a sound record that belongs at {position}")


class Newer(Exception):
    """A sound record of a kind from the future."""


# --- encoding: sizes first (a record is placed before it is written), then bytes ---------------


@lru_cache(maxsize=4096)
def utf8(text: str) -> bytes:
    """The same few names over and over: encoded once."""
    return text.encode()


def aligned(size: int) -> int:
    """`size` with its padding."""
    return size + -size % ALIGNMENT


def size_of(record: Record) -> int:
    """The bytes that `record` will take, padding left out; the head's and the bodies' together."""
    return HEAD_BYTES_MIN + SIZES[record.kind](record)


def _run_size(run: Run) -> int:
    size = PLACE.size + len(utf8(run.topic)) + len(run.producer) + len(run.tx_id)
    if not run.producer.isascii():
        size += len(utf8(run.producer)) - len(run.producer)
    if run.kind != Kind.MESSAGE:
        size += 8
    content = run.content
    if content is None:
        return size + 8
    if content.flags & COMPRESSED:
        size += 4
    return size + len(content.columns) + len(content.bodies)


def _prepare_size(prepare: Prepare) -> int:
    names = len(utf8(prepare.producer)) + len(prepare.tx_id)
    return PREPARE_HEAD.size + names + sum(map(_ack_size, prepare.acks))


def _decided_size(decided: Decided) -> int:
    names = len(utf8(decided.producer)) + len(decided.tx_id) + len(utf8(decided.decided_by))
    return DECISION_HEAD.size + names + len(decided.reason.encode())


def _acks_size(acks: Acks) -> int:
    return TIME_HEAD.size + 4 + sum(map(_ack_size, acks.ranges))


def _ack_size(ack: AckRange) -> int:
    return 4 + len(utf8(ack.group)) + len(utf8(ack.topic)) + ACK_RANGE.size


SIZES: dict[int, Callable[..., int]] = {
    Kind.MESSAGE: _run_size,
    Kind.PRE_MESSAGE: _run_size,
    Kind.REF_MESSAGE: _run_size,
    Kind.TX_MESSAGE: _run_size,
    Kind.PREPARE: _prepare_size,
    Kind.COMMIT: _decided_size,
    Kind.ROLLBACK: _decided_size,
    Kind.ACK: _acks_size,
    Kind.STATE: lambda state: TIME_HEAD.size + len(state.json),
    Kind.TOPIC: lambda made: TIME_HEAD.size + 3 + len(utf8(made.name)),
}


def encode(record: Record, durable_to: int, seed: int) -> tuple[bytes, bytes, bytes, bytes]:
    """`record`, whose position, size and flags are set, as buffers to write one after the other:
    magic and checksum, the rest of the head, the bodies, the padding.
    """
    lag = record.position - durable_to
    if lag >= LAG_UNKNOWN:
        lag = LAG_UNKNOWN
    head, bodies = ENCODERS[record.kind](record, lag)
    prefix = PREFIX.pack(MAGIC, zlib.crc32(head, seed))
    assert PREFIX_BYTES + len(head) + len(bodies) == record.size, record.kind
    return prefix, head, bodies, PADDING[record.size % ALIGNMENT]


def _encode_message(run: Run, lag: int) -> tuple[bytes, bytes]:
    content = run.content
    assert content is not None
    topic, producer, bodies = utf8(run.topic), utf8(run.producer), content.bodies
    head = MESSAGE_HEAD.pack(
        run.size,
        run.size - len(bodies),
        run.position,
        lag,
        content.bodies_crc,
        Kind.MESSAGE,
        run.flags | content.flags,
        run.queue,
        run.offset,
        run.time_us,
        run.count,
        len(topic),
        len(producer),
        0,
    )
    return b"".join((head, topic, producer, _raw(content), content.columns)), bodies


def _encode_run(run: Run, lag: int) -> tuple[bytes, bytes]:
    content = run.content
    if content is None:
        flags, crc, bodies, rest = 0, 0, b"", U64.pack(run.body_position)
    else:
        flags, crc, bodies = content.flags, content.bodies_crc, content.bodies
        rest = _raw(content) + content.columns
    topic, producer, tx_id = utf8(run.topic), utf8(run.producer), run.tx_id.encode()
    head = TX_HEAD.pack(
        run.size,
        run.size - len(bodies),
        run.position,
        lag,
        crc,
        run.kind,
        run.flags | flags,
        run.queue,
        run.tx,
        run.offset,
        run.time_us,
        run.count,
        len(topic),
        len(producer),
        len(tx_id),
    )
    return b"".join((head, topic, producer, tx_id, rest)), bodies


def _raw(content: Content) -> bytes:
    return U32.pack(content.raw_bytes) if content.flags & COMPRESSED else b""


def _common(record: Record, lag: int, bodies: bytes = b"") -> bytes:
    head_size = record.size - len(bodies)
    crc = zlib.crc32(bodies) if bodies else 0
    flags = record.flags
    return COMMON.pack(record.size, head_size, record.position, lag, crc, record.kind, flags, 0)


def _encode_prepare(prepare: Prepare, lag: int) -> tuple[bytes, bytes]:
    producer, tx_id = utf8(prepare.producer), prepare.tx_id.encode()
    own = PREPARE_HEAD.pack(
        prepare.tx or prepare.position,
        prepare.time_us,
        prepare.prepared_us,
        prepare.replaces,
        prepare.records,
        prepare.messages,
        prepare.bytes,
        prepare.seal,
        prepare.check_after_ms,
        len(prepare.acks),
        len(producer),
        len(tx_id),
    )
    acks = b"".join(map(_encode_ack_range, prepare.acks))
    return b"".join((_common(prepare, lag), own, producer, tx_id, acks)), b""


def _encode_decided(decided: Decided, lag: int) -> tuple[bytes, bytes]:
    producer, tx_id = utf8(decided.producer), decided.tx_id.encode()
    by, reason = utf8(decided.decided_by), decided.reason.encode()
    own = DECISION_HEAD.pack(
        decided.tx,
        decided.time_us,
        decided.prepared_us,
        decided.append_start,
        decided.records,
        decided.messages,
        decided.bytes,
        decided.seal,
        0,
        len(producer),
        len(tx_id),
        len(by),
        len(reason),
    )
    return b"".join((_common(decided, lag), own, producer, tx_id, by, reason)), b""


def _encode_acks(acks: Acks, lag: int) -> tuple[bytes, bytes]:
    own = TIME_HEAD.pack(acks.tx, acks.time_us) + U32.pack(len(acks.ranges))
    return _common(acks, lag) + own + b"".join(map(_encode_ack_range, acks.ranges)), b""


def _encode_ack_range(ack: AckRange) -> bytes:
    group, topic = utf8(ack.group), utf8(ack.topic)
    head = bytes((len(group), len(topic))) + U16.pack(ack.queue)
    return b"".join((head, group, topic, ACK_RANGE.pack(ack.first, ack.end)))


def _encode_state(state: State, lag: int) -> tuple[bytes, bytes]:
    return _common(state, lag, state.json) + TIME_HEAD.pack(0, state.time_us), state.json


def _encode_topic(made: TopicMade, lag: int) -> tuple[bytes, bytes]:
    name = utf8(made.name)
    own = TIME_HEAD.pack(0, made.time_us) + U16.pack(made.queues) + bytes((len(name),))
    return _common(made, lag) + own + name, b""


ENCODERS: dict[int, Callable[..., tuple[bytes, bytes]]] = {
    Kind.MESSAGE: _encode_message,
    Kind.PRE_MESSAGE: _encode_run,
    Kind.REF_MESSAGE: _encode_run,
    Kind.TX_MESSAGE: _encode_run,
    Kind.PREPARE: _encode_prepare,
    Kind.COMMIT: _encode_decided,
    Kind.ROLLBACK: _encode_decided,
    Kind.ACK: _encode_acks,
    Kind.STATE: _encode_state,
    Kind.TOPIC: _encode_topic,
}


# --- decoding ------------------------------------------------------------------------------------


def decode(data: bytes, at: int, position: int, seed: int, *, bodies: bool = True) -> Record:
    """The record that begins at `data[at]` and at `position` of the journal.

    Whatever the bytes are, the outcome is a record, BadRecord, Misplaced or Newer. The bodies'
    checksum is verified too, unless `bodies` is False.
    """
    try:
        size, head_size, says, lag, bodies_crc, kind, flags, queue = COMMON.unpack_from(
            data, at + 8
        )
        magic, crc = PREFIX.unpack_from(data, at)
    except StructError:
        raise BadRecord("fewer bytes than a head has") from None
    if magic != MAGIC:
        raise BadRecord("no record begins here")
    if not HEAD_BYTES_MIN <= head_size <= size <= RECORD_BYTES_MAX:
        raise BadRecord(f"impossible sizes: {size}, of which {head_size} are the head")
    end = at + head_size
    if end > len(data):
        raise BadRecord("the head is cut short")
    if zlib.crc32(data[at + PREFIX_BYTES : end], seed) != crc:
        raise BadRecord("the head's checksum does not match")
    if says != position:
        raise Misplaced(says)
    if kind not in DECODERS:
        raise Newer(f"a record of kind {kind}")
    if bodies and size != head_size:
        check_bodies(data, end, at + size, bodies_crc)
    try:
        record = DECODERS[kind](data, at + HEAD_BYTES_MIN, end, at + size, kind, flags)
    except (StructError, UnicodeDecodeError, IndexError) as error:
        # The checksum is right, so these bytes were meant, and not by this version.
        raise Newer(f"a {Kind(kind).name} of an unknown shape ({error})") from None
    if isinstance(record, Run):
        record.queue = queue
        record.bodies_crc = bodies_crc
        if kind != Kind.REF_MESSAGE:
            record.body_position = position
            if not flags & COMPRESSED:
                record.raw_bytes = size - head_size
    record.position = position
    record.size = size
    record.flags = flags
    return record


def check_bodies(data: bytes, start: int, end: int, bodies_crc: int) -> None:
    """BadRecord unless `data[start:end]` are the bodies that the head promises."""
    if end > len(data):
        raise BadRecord("the bodies are cut short")
    if zlib.crc32(data[start:end]) != bodies_crc:
        raise BadRecord("the bodies' checksum does not match")


def durable_to_of(data: bytes, at: int) -> int:
    """How far the journal was durable when the record at `data[at]` was written; 0: unknown."""
    _, _, position, lag, *_ = COMMON.unpack_from(data, at + 8)
    return 0 if lag == LAG_UNKNOWN else int(position - lag)


@lru_cache(maxsize=4096)
def _text(data: bytes) -> str:
    return data.decode()


def _decode_run(data: bytes, at: int, head_end: int, end: int, kind: int, flags: int) -> Run:
    tx = 0
    if kind != Kind.MESSAGE:
        (tx,) = U64.unpack_from(data, at)
        at += 8
    offset, time_us, count, topic_size, producer_size, tx_id_size = PLACE.unpack_from(data, at)
    at += PLACE.size
    names = at + topic_size
    run = Run(kind, _text(data[at:names]), 0, offset, count, time_us, tx)
    if producer_size or tx_id_size:
        at, names = names, names + producer_size
        run.producer = _text(data[at:names])
        at, names = names, names + tx_id_size
        run.tx_id = data[at:names].decode("ascii")
    if kind == Kind.REF_MESSAGE:
        (run.body_position,) = U64.unpack_from(data, names)
    else:
        if flags & COMPRESSED:
            (run.raw_bytes,) = U32.unpack_from(data, names)
            names += 4
        if tx:
            run.columns_crc = zlib.crc32(data[names:head_end])
    if not 0 < count <= COUNT_MAX or names > head_end:
        raise IndexError(f"{count} messages")
    return run


def _decode_prepare(
    data: bytes, at: int, head_end: int, end: int, kind: int, flags: int
) -> Prepare:
    (
        tx, time_us, prepared_us, replaces, records, messages, size_bytes, seal, check_after_ms,
        acks, producer_size, tx_id_size,
    ) = PREPARE_HEAD.unpack_from(data, at)  # fmt: skip
    at += PREPARE_HEAD.size
    producer, at = data[at : at + producer_size].decode(), at + producer_size
    tx_id, at = data[at : at + tx_id_size].decode("ascii"), at + tx_id_size
    return Prepare(
        tx_id,
        producer,
        time_us,
        records,
        messages,
        size_bytes,
        seal,
        _decode_ack_ranges(data, at, head_end, acks),
        tx=tx,
        prepared_us=prepared_us,
        replaces=replaces,
        check_after_ms=check_after_ms,
    )


def _decode_decided(
    data: bytes, at: int, head_end: int, end: int, kind: int, flags: int
) -> Decided:
    (
        tx, time_us, prepared_us, append_start, records, messages, size_bytes, seal, _,
        producer_size, tx_id_size, by_size, reason_size,
    ) = DECISION_HEAD.unpack_from(data, at)  # fmt: skip
    at += DECISION_HEAD.size
    producer, at = data[at : at + producer_size].decode(), at + producer_size
    tx_id, at = data[at : at + tx_id_size].decode("ascii"), at + tx_id_size
    by, at = data[at : at + by_size].decode(), at + by_size
    reason = data[at : at + reason_size].decode()
    return Decided(
        Kind(kind),
        tx,
        tx_id,
        producer,
        time_us,
        prepared_us,
        records,
        messages,
        size_bytes,
        seal,
        by,
        reason,
        append_start,
    )


def _decode_acks(data: bytes, at: int, head_end: int, end: int, kind: int, flags: int) -> Acks:
    tx, time_us = TIME_HEAD.unpack_from(data, at)
    at += TIME_HEAD.size
    (count,) = U32.unpack_from(data, at)
    return Acks(_decode_ack_ranges(data, at + 4, head_end, count), time_us, tx)


def _decode_ack_ranges(data: bytes, at: int, head_end: int, count: int) -> list[AckRange]:
    ranges = []
    for _ in range(count):
        if at + 4 + ACK_RANGE.size > head_end:
            raise IndexError("the acks are cut short")
        group_size, topic_size = data[at], data[at + 1]
        (queue,) = U16.unpack_from(data, at + 2)
        at += 4
        group, at = _text(data[at : at + group_size]), at + group_size
        topic, at = _text(data[at : at + topic_size]), at + topic_size
        first, last = ACK_RANGE.unpack_from(data, at)
        at += ACK_RANGE.size
        ranges.append(AckRange(group, topic, queue, first, last))
    return ranges


def _decode_state(data: bytes, at: int, head_end: int, end: int, kind: int, flags: int) -> State:
    _, time_us = TIME_HEAD.unpack_from(data, at)
    return State(data[head_end:end], time_us)


def _decode_topic(
    data: bytes, at: int, head_end: int, end: int, kind: int, flags: int
) -> TopicMade:
    _, time_us = TIME_HEAD.unpack_from(data, at)
    at += TIME_HEAD.size
    (queues,) = U16.unpack_from(data, at)
    name = data[at + 3 : at + 3 + data[at + 2]]
    return TopicMade(name.decode(), queues, time_us)


DECODERS: dict[int, Callable[..., Record]] = {
    Kind.MESSAGE: _decode_run,
    Kind.PRE_MESSAGE: _decode_run,
    Kind.REF_MESSAGE: _decode_run,
    Kind.TX_MESSAGE: _decode_run,
    Kind.PREPARE: _decode_prepare,
    Kind.COMMIT: _decode_decided,
    Kind.ROLLBACK: _decode_decided,
    Kind.ACK: _decode_acks,
    Kind.STATE: _decode_state,
    Kind.TOPIC: _decode_topic,
}


def _parts(data: bytes, at: int, run: Run) -> tuple[bytes, bytes]:
    """The columns and the bodies of `run`, sound and lying at `data[at]`, as they are stored."""
    _, head_size, *_ = COMMON.unpack_from(data, at + PREFIX_BYTES)
    start = at + HEAD_BYTES_MIN + PLACE.size + len(utf8(run.topic))
    start += len(utf8(run.producer)) + len(run.tx_id)
    if run.kind != Kind.MESSAGE:
        start += 8
    if run.flags & COMPRESSED:
        start += 4
    bodies = at + head_size
    return data[start:bodies], data[bodies : at + run.size]


def columns_of(data: bytes, at: int, run: Run) -> Columns:
    """The columns of `run`, sound and lying at `data[at]`; not of a REF_MESSAGE, which has none."""
    columns, bodies = _parts(data, at, run)
    return Columns(run.count, run.flags, columns, bodies, run.raw_bytes)


def content_of(data: bytes, at: int, run: Run) -> Content:
    """The same, to be written again as it is."""
    columns, bodies = _parts(data, at, run)
    flags = run.flags & ~(FIRST | LAST)
    return Content(run.count, flags, columns, bodies, run.bodies_crc, run.raw_bytes)
