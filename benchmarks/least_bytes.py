"""What fmq writes for sends, transactions and acks, made by nothing but struct, zlib and hashlib.

Written out flat, for one producer without a name, one queue a topic and bodies without keys: the
least that Python has to do for these bytes. tests/test_least.py compares them with fmq's own.
"""

from __future__ import annotations

import time
from hashlib import blake2b
from struct import Struct
from zlib import crc32

from fmq.store.bytes.kinds import COMMIT, MESSAGE, PRE_MESSAGE, TX_MESSAGE, Kind
from fmq.store.bytes.record import (
    ACK_RANGE,
    COMMON,
    DECISION_COUNTS,
    DECISION_FRONT,
    FIRST,
    LAST,
    MAGIC,
    MESSAGE_HEAD,
    PADDING,
    PREFIX,
    PREPARE_COUNTS,
    PREPARE_FRONT,
    TX_HEAD,
    aligned,
)
from fmq.tx.ledger.seal import SEAL_BYTES, SEALED

PREPARE_WHOLE = Struct(PREPARE_FRONT.format + PREPARE_COUNTS)
DECISION_WHOLE = Struct(DECISION_FRONT.format + DECISION_COUNTS)
ACKS_FRONT = Struct(COMMON.format + "QqI")
PREPARE, ACK = Kind.PREPARE, Kind.ACK

# Where a record stands: its topic, first offset, count and position.
Place = tuple[str, int, int, int]


def framed(head: bytes, body: bytes, seed: int) -> bytes:
    """A record: magic, checksum, the rest of the head, the bodies, the padding."""
    size = PREFIX.size + len(head) + len(body)
    return b"".join((PREFIX.pack(MAGIC, crc32(head, seed)), head, body, PADDING[size % 8]))


def message(
    position: int, lag: int, seed: int, topic: str, body: bytes, first: int, now: int
) -> bytes:
    """Return the bytes that a single send writes."""
    name = topic.encode()
    head_size = PREFIX.size + MESSAGE_HEAD.size + len(name)
    head = MESSAGE_HEAD.pack(
        head_size + len(body), head_size, position, lag, crc32(body), MESSAGE, FIRST | LAST, 0,
        first, now, 1, len(name), 0, 0,
    )  # fmt: skip
    return framed(head + name, body, seed)


# What a transaction holds for one topic: its name twice, how many messages, those, and their CRC.
Row = tuple[str, bytes, int, bytes, int]


def rows_of(runs: dict[str, list[bytes]]) -> tuple[list[Row], bytes, int, int]:
    """A row for each topic, the seal over them, and how many messages and bytes they are."""
    rows: list[Row] = []
    sealed: list[bytes] = []
    messages = raw_bytes = 0
    for topic, bodies in runs.items():
        joined, name, number = b"".join(bodies), topic.encode(), len(bodies)
        crc = crc32(joined)
        rows.append((topic, name, number, joined, crc))
        sealed += (SEALED.pack(0, number, crc, 0), name)
        messages += number
        raw_bytes += len(joined)
    seal = blake2b(b"".join(sealed), digest_size=SEAL_BYTES).digest()
    return rows, seal, messages, raw_bytes


def transaction(
    position: int,
    lag: int,
    seed: int,
    runs: dict[str, list[bytes]],
    firsts: dict[str, int],
    tx_id: str,
    now: int,
) -> tuple[bytes, list[Place]]:
    """Return the bytes of a transaction in one phase, and the places of its messages. `firsts` are
    the next offsets of the topics.
    """
    return commit(position, lag, seed, *rows_of(runs), firsts, tx_id, now, position, now)


def prepare(
    position: int,
    lag: int,
    seed: int,
    rows: list[Row],
    seal: bytes,
    messages: int,
    raw_bytes: int,
    tx_id: str,
    now: int,
) -> bytes:
    """Return the bytes of the first of two phases: PREPARE and PRE_MESSAGEs."""
    tx_id_bytes = tx_id.encode()
    size = PREFIX.size + PREPARE_WHOLE.size + len(tx_id_bytes)
    head = PREPARE_WHOLE.pack(
        size, size, position, lag, 0, PREPARE, FIRST, 0,
        position, now, now, 0, len(rows), messages, raw_bytes, seal, -1, 0, 0, len(tx_id_bytes),
    )  # fmt: skip
    records = [framed(head + tx_id_bytes, b"", seed)]
    at, last = position + aligned(size), rows[-1]
    for row in rows:
        _, name, number, joined, crc = row
        head_size = PREFIX.size + TX_HEAD.size + len(name) + len(tx_id_bytes)
        size = head_size + len(joined)
        head = TX_HEAD.pack(
            size, head_size, at, lag + at - position, crc,
            PRE_MESSAGE, LAST if row is last else 0, 0,
            position, 0, now, number, len(name), 0, len(tx_id_bytes),
        )  # fmt: skip
        records.append(framed(head + name + tx_id_bytes, joined, seed))
        at += aligned(size)
    return b"".join(records)


def commit(
    position: int,
    lag: int,
    seed: int,
    rows: list[Row],
    seal: bytes,
    messages: int,
    raw_bytes: int,
    firsts: dict[str, int],
    tx_id: str,
    now: int,
    tx: int,
    prepared: int,
) -> tuple[bytes, list[Place]]:
    """Return the bytes that publish the transaction `tx`, TX_MESSAGEs and COMMIT, and their
    places.
    """
    tx_id_bytes = tx_id.encode()
    records, places, at, flags = [], [], position, FIRST
    for topic, name, number, joined, crc in rows:
        head_size = PREFIX.size + TX_HEAD.size + len(name) + len(tx_id_bytes)
        size = head_size + len(joined)
        first = firsts[topic]
        head = TX_HEAD.pack(
            size, head_size, at, lag + at - position, crc, TX_MESSAGE, flags, 0,
            tx, first, now, number, len(name), 0, len(tx_id_bytes),
        )  # fmt: skip
        records.append(framed(head + name + tx_id_bytes, joined, seed))
        places.append((topic, first, number, at))
        at += aligned(size)
        flags = 0
    size = PREFIX.size + DECISION_WHOLE.size + len(tx_id_bytes)
    head = DECISION_WHOLE.pack(
        size, size, at, lag + at - position, 0, COMMIT, LAST, 0,
        tx, now, prepared, position, len(rows), messages, raw_bytes, seal, 0, 0,
        len(tx_id_bytes), 0, 0,
    )  # fmt: skip
    return b"".join((*records, framed(head + tx_id_bytes, b"", seed))), places


def ack(position: int, lag: int, seed: int, names: bytes, first: int, end: int, now: int) -> bytes:
    """Return the bytes of an ack for the group, topic and queue in `names`."""
    size = PREFIX.size + ACKS_FRONT.size + len(names) + ACK_RANGE.size
    head = ACKS_FRONT.pack(size, size, position, lag, 0, ACK, FIRST | LAST, 0, 0, now, 1)
    return framed(head + names + ACK_RANGE.pack(first, end), b"", seed)


def now_us() -> int:
    return time.time_ns() // 1000
