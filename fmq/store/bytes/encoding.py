"""Encoding records. The size of a record is known first, because it is placed before it is
encoded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any
from zlib import crc32

from fmq.store.bytes.columns import COMPRESSED
from fmq.store.bytes.forms import FORMS, ack_names_of, encode_ack
from fmq.store.bytes.kinds import (
    MESSAGE,
    AckRange,
    Decided,
    Kind,
    Prepare,
    Record,
    Run,
)
from fmq.store.bytes.record import (
    ACK_RANGE,
    ALIGNMENT,
    BOUND,
    DECISION_FRONT,
    DECISION_HEAD,
    EXTENDED,
    HEAD_BYTES_MIN,
    LAG_UNKNOWN,
    MAGIC,
    MESSAGE_HEAD,
    PADDING,
    PLACE,
    PREPARE_FRONT,
    PREPARE_HEAD,
    TX_HEAD,
    U32,
    U64,
    utf8,
)

MESSAGE_BYTES = HEAD_BYTES_MIN + PLACE.size
TX_RUN_BYTES = MESSAGE_BYTES + U64.size  # the number of its transaction comes in between
PREPARE_BYTES = HEAD_BYTES_MIN + PREPARE_HEAD.size
DECISION_BYTES = HEAD_BYTES_MIN + DECISION_HEAD.size
PREPARE = Kind.PREPARE  # a plain name is looked up faster, see kinds.py
U32_pack = U32.pack
assert ALIGNMENT == 8, "PADDING is asked by the lowest three bits"


def size_of(record: Record) -> int:
    """Return how many bytes `record` takes, head and bodies together, without padding."""
    return SIZES[record.kind](record) + len(record.extension)


def _run_size(run: Run) -> int:
    """Return the size of a run. Put its names and columns together here, before the lock is
    taken.
    """
    content, size = run.content, MESSAGE_BYTES if run.kind == MESSAGE else TX_RUN_BYTES
    tail = names_of(run.topic, run.producer)[2]
    if run.tx_id:
        tail += run.tx_id.encode()
    if content is None:
        tail += U64.pack(run.body_position)
    else:
        size += len(content.bodies)
        if content.flags:
            if content.flags & COMPRESSED:
                tail += U32.pack(content.raw_bytes)
            tail += content.columns
    run.tail = tail
    return size + len(tail)


@lru_cache(maxsize=4096)
def names_of(topic: str, producer: str) -> tuple[int, int, bytes]:
    """Return how many bytes each name takes, and both names as they are in a record."""
    names = topic.encode(), producer.encode()
    return len(names[0]), len(names[1]), b"".join(names)


def _prepare_size(prepare: Prepare) -> int:
    size = PREPARE_BYTES + len(utf8(prepare.producer)) + len(prepare.tx_id)
    return size + sum(map(_ack_size, prepare.acks)) if prepare.acks else size


def _decided_size(decided: Decided) -> int:
    names = len(utf8(decided.producer)) + len(decided.tx_id) + len(utf8(decided.decided_by))
    return DECISION_BYTES + names + len(decided.reason.encode())


def _ack_size(ack: AckRange) -> int:
    return len(ack_names_of(ack.group, ack.topic, ack.queue)) + ACK_RANGE.size


SIZES: dict[int, Callable[..., int]] = {
    Kind.MESSAGE: _run_size,
    Kind.PRE_MESSAGE: _run_size,
    Kind.REF_MESSAGE: _run_size,
    Kind.TX_MESSAGE: _run_size,
    Kind.TIMER: _run_size,
    Kind.PREPARE: _prepare_size,
    Kind.COMMIT: _decided_size,
    Kind.ROLLBACK: _decided_size,
    **{kind: form.size for kind, form in FORMS.items()},
}


def encode_all(
    records: Sequence[Any], at: int, now: int, durable_to: int, seed: int, chain: int
) -> tuple[list[bytes], int]:
    """Place measured `records` one after another from the position `at` on, with the time `now`.

    Return them as buffers to write one after another, and the chain after them. The buffers of a
    record are: magic, checksum, the rest of the head, the bodies, the padding.
    """
    buffers: list[bytes] = []
    for record in records:
        record.position, record.time_us = at, now
        lag, size = at - durable_to, record.size
        encode = _encode_extended if record.extension else ENCODERS[record.kind]
        head, bodies = encode(record, lag if lag < LAG_UNKNOWN else LAG_UNKNOWN)
        crc = U32_pack(crc32(head, seed))
        chain = crc32(crc, chain)
        buffers += MAGIC, crc, head, bodies, PADDING[size & 7]
        at += (size + 7) & ~7
    return buffers, chain


def _encode_extended(record: Record, lag: int) -> tuple[bytes, bytes]:
    record.flags |= EXTENDED
    head, bodies = ENCODERS[record.kind](record, lag)
    return head + record.extension, bodies


def _encode_message(run: Run, lag: int) -> tuple[bytes, bytes]:
    content: Any = run.content
    bodies, size = content.bodies, run.size
    topic_bytes, producer_bytes, _ = names_of(run.topic, run.producer)
    head = MESSAGE_HEAD.pack(
        size,
        size - len(bodies),
        run.position,
        lag,
        content.bodies_crc,
        MESSAGE,
        run.flags | content.flags,
        run.queue,
        run.offset,
        run.time_us,
        run.count,
        topic_bytes,
        producer_bytes,
        len(run.tx_id),
    )
    return head + run.tail, bodies


def _encode_run(run: Run, lag: int) -> tuple[bytes, bytes]:
    content = run.content
    if content is None:
        flags, crc, bodies = run.flags, 0, b""
    else:
        flags, crc, bodies = run.flags | content.flags, content.bodies_crc, content.bodies
    topic_bytes, producer_bytes, _ = names_of(run.topic, run.producer)
    head = TX_HEAD.pack(
        run.size,
        run.size - len(bodies),
        run.position,
        lag,
        crc,
        run.kind,
        flags,
        run.queue,
        run.tx,
        run.offset,
        run.time_us,
        run.count,
        topic_bytes,
        producer_bytes,
        len(run.tx_id),
    )
    return head + run.tail, bodies


def _encode_prepare(prepare: Prepare, lag: int) -> tuple[bytes, bytes]:
    producer, tx_id, size = utf8(prepare.producer), prepare.tx_id.encode(), prepare.size
    head = PREPARE_FRONT.pack(
        size,
        size,
        prepare.position,
        lag,
        0,
        PREPARE,
        prepare.flags | BOUND if prepare.bound else prepare.flags,
        0,
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
    acks = b"".join(map(encode_ack, prepare.acks)) if prepare.acks else b""
    return head + producer + tx_id + acks, b""


def _encode_decided(decided: Decided, lag: int) -> tuple[bytes, bytes]:
    producer, tx_id, size = utf8(decided.producer), decided.tx_id.encode(), decided.size
    by, reason = utf8(decided.decided_by), decided.reason.encode()
    head = DECISION_FRONT.pack(
        size,
        size,
        decided.position,
        lag,
        0,
        decided.kind,
        decided.flags,
        0,
        decided.tx,
        decided.time_us,
        decided.prepared_us,
        decided.append_start,
        decided.records,
        decided.messages,
        decided.bytes,
        decided.seal,
        decided.asked,
        len(producer),
        len(tx_id),
        len(by),
        len(reason),
    )
    return b"".join((head, producer, tx_id, by, reason)), b""


ENCODERS: dict[int, Callable[..., tuple[bytes, bytes]]] = {
    Kind.MESSAGE: _encode_message,
    Kind.PRE_MESSAGE: _encode_run,
    Kind.REF_MESSAGE: _encode_run,
    Kind.TX_MESSAGE: _encode_run,
    Kind.TIMER: _encode_run,
    Kind.PREPARE: _encode_prepare,
    Kind.COMMIT: _encode_decided,
    Kind.ROLLBACK: _encode_decided,
    **{kind: form.encode for kind, form in FORMS.items()},
}
