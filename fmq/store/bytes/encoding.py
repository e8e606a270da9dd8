"""Encoding records. Each is measured and placed when it is encoded, unless its size was asked for
before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from struct import Struct
from typing import Any
from zlib import crc32

from fmq.store.bytes.columns import COMPRESSED
from fmq.store.bytes.forms import FORMS, encode_ack
from fmq.store.bytes.kinds import (
    MESSAGE,
    Decided,
    Kind,
    Prepare,
    Record,
    Run,
)
from fmq.store.bytes.record import (
    ALIGNMENT,
    BOUND,
    DECISION_COUNTS,
    DECISION_FRONT,
    EXTENDED,
    LAG_UNKNOWN,
    MAGIC,
    MESSAGE_FRONT,
    PADDING,
    PREFIX_BYTES,
    PREPARE_COUNTS,
    PREPARE_FRONT,
    TX_FRONT,
    U32,
    U64,
    utf8,
)

MESSAGE_BYTES = PREFIX_BYTES + MESSAGE_FRONT.size
TX_BYTES = PREFIX_BYTES + TX_FRONT.size
PREPARE_BYTES = PREFIX_BYTES + PREPARE_FRONT.size
DECISION_BYTES = PREFIX_BYTES + DECISION_FRONT.size
PREPARE_COUNTS_pack = Struct("<" + PREPARE_COUNTS).pack
DECISION_COUNTS_pack = Struct("<" + DECISION_COUNTS).pack
MESSAGE_FRONT_pack, TX_FRONT_pack = MESSAGE_FRONT.pack, TX_FRONT.pack
PREPARE = Kind.PREPARE  # a plain name is looked up faster, see kinds.py
U32_pack = U32.pack
assert ALIGNMENT == 8, "PADDING is asked by the lowest three bits"


def size_of(record: Record) -> int:
    """Return how many bytes `record` takes, head and bodies together, without padding. Build the
    end of its head, too: from now on nothing may change the fields in it.
    """
    return SIZES[record.kind](record)


def measured(records: Iterable[Record]) -> int:
    """Return how many bytes `records` take in the journal. Set the size of each record that has
    none.
    """
    total = 0
    for record in records:
        size = record.size or SIZES[record.kind](record)
        total += (size + 7) & ~7
    return total


def _run_size(run: Run) -> int:
    run.tail = tail = _run_tail(run)
    front_bytes = MESSAGE_BYTES if run.kind == MESSAGE else TX_BYTES
    run.size = size = front_bytes + len(tail) + len(run.bodies or b"")
    return size


def _run_tail(run: Run) -> bytes:
    tail, tx_id = run.columns, run.tx_id
    if run.bodies is None:
        # A REF_MESSAGE has no bodies, and names those of its PRE_MESSAGE.
        tail = U64.pack(run.body_position)
    elif run.flags & COMPRESSED:
        tail = U32.pack(run.raw_bytes) + tail
    if tx_id:
        tail = tx_id.encode() + tail
    return names_of(run.topic, run.producer, len(tx_id)) + tail + run.extension


@lru_cache(maxsize=4096)
def names_of(topic: str, producer: str, tx_id_bytes: int) -> bytes:
    """Return the names of a run, except for its tx_id, with the lengths of all three."""
    names = topic.encode(), producer.encode()
    return b"".join((bytes((*map(len, names), tx_id_bytes)), *names))


def _prepare_size(prepare: Prepare) -> int:
    producer, tx_id = utf8(prepare.producer), prepare.tx_id.encode()
    counts = PREPARE_COUNTS_pack(len(prepare.acks), len(producer), len(tx_id))
    acks = map(encode_ack, prepare.acks)
    prepare.tail = tail = b"".join((counts, producer, tx_id, *acks, prepare.extension))
    prepare.size = size = PREPARE_BYTES + len(tail)
    return size


def _decided_size(decided: Decided) -> int:
    producer, by = utf8(decided.producer), utf8(decided.decided_by)
    texts = producer, decided.tx_id.encode(), by, decided.reason.encode()
    counts = DECISION_COUNTS_pack(*map(len, texts))
    decided.tail = tail = b"".join((counts, *texts, decided.extension))
    decided.size = size = DECISION_BYTES + len(tail)
    return size


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
) -> tuple[list[bytes], int, int]:
    """Place `records` one after another from the position `at` on, with the time `now`. Return them
    as buffers to write one after another, the chain after them, and the position after them.

    The buffers of a record are: magic, checksum, the rest of the head, the bodies, the padding.
    """
    buffers: list[bytes] = []
    for record in records:
        record.position, record.time_us = at, now
        if record.extension:
            record.flags |= EXTENDED
        lag = at - durable_to
        head, bodies = ENCODERS[record.kind](record, lag if lag < LAG_UNKNOWN else LAG_UNKNOWN)
        crc = U32_pack(crc32(head, seed))
        chain = crc32(crc, chain)
        size = record.size
        buffers += MAGIC, crc, head, bodies, PADDING[size & 7]
        at += (size + 7) & ~7
    return buffers, chain, at


def _encode_message(run: Run, lag: int) -> tuple[bytes, bytes]:
    bodies, tail = run.bodies or b"", run.tail or _run_tail(run)
    head_size = MESSAGE_BYTES + len(tail)
    run.size = size = head_size + len(bodies)
    head = MESSAGE_FRONT_pack(
        size, head_size, run.position, lag, run.bodies_crc, MESSAGE, run.flags, run.queue,
        run.offset, run.time_us, run.count,
    )  # fmt: skip
    return head + tail, bodies


def _encode_run(run: Run, lag: int) -> tuple[bytes, bytes]:
    bodies, tail = run.bodies or b"", run.tail or _run_tail(run)
    head_size = TX_BYTES + len(tail)
    run.size = size = head_size + len(bodies)
    head = TX_FRONT_pack(
        size, head_size, run.position, lag, run.bodies_crc, run.kind, run.flags, run.queue,
        run.tx, run.offset, run.time_us, run.count,
    )  # fmt: skip
    return head + tail, bodies


def _encode_prepare(prepare: Prepare, lag: int) -> tuple[bytes, bytes]:
    size = prepare.size or _prepare_size(prepare)
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
    )
    return head + prepare.tail, b""


def _encode_decided(decided: Decided, lag: int) -> tuple[bytes, bytes]:
    size = decided.size or _decided_size(decided)
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
    )
    return head + decided.tail, b""


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
