"""The least of an engine: what any engine must do behind fmq's interface, written out flat.

It makes the bytes that fmq writes, gives them a lock, offsets, limits, an index and receipts, and
leaves out all that an engine is asked for besides: sharing syncs, rolling, readers, waiters, keys
and headers, checkpoints, retention, recovery, failures and signals. Nobody should use it. It is
here to be timed: an engine in Python that does more than this takes longer than this.
"""

from __future__ import annotations

import os
import time
from array import array
from hashlib import blake2b
from itertools import count
from pathlib import Path
from threading import Lock
from zlib import crc32

from benchmarks import zeros
from fmq.message import Receipt, receipt
from fmq.store.record import (
    DECISION_FRONT,
    FIRST,
    LAST,
    MAGIC,
    MESSAGE_HEAD,
    PADDING,
    PREFIX,
    TX_HEAD,
    aligned,
)
from fmq.tx.seal import SEAL_BYTES, SEALED

FILE_BYTES = 64 << 20
BODY_BYTES_MAX = 1 << 20
LARGEST_APPEND_BYTES = 4 << 20

# Where a record stands: its topic, first offset, count and position.
Place = tuple[str, int, int, int]


class BareFile:
    """Zeros that are on the disk, written over from front to back."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        zeros.fill(self._fd, FILE_BYTES)
        self.position = 64

    def write(self, data: bytes) -> None:
        os.pwritev(self._fd, (data,), self.position, os.RWF_DSYNC)
        self.position = (self.position + len(data)) % (FILE_BYTES - LARGEST_APPEND_BYTES)


# --- the bytes ------------------------------------------------------------------------------------


def framed(head: bytes, body: bytes, seed: int) -> bytes:
    """A record: magic, checksum, the rest of the head, the bodies, the padding."""
    size = PREFIX.size + len(head) + len(body)
    return b"".join((PREFIX.pack(MAGIC, crc32(head, seed)), head, body, PADDING[size % 8]))


def message(
    position: int, lag: int, seed: int, topic: str, body: bytes, first: int, now: int
) -> bytes:
    """What a single send writes."""
    name = topic.encode()
    head_size = PREFIX.size + MESSAGE_HEAD.size + len(name)
    head = MESSAGE_HEAD.pack(
        head_size + len(body), head_size, position, lag, crc32(body), 1, FIRST | LAST, 0,
        first, now, 1, len(name), 0, 0,
    )  # fmt: skip
    return framed(head + name, body, seed)


def transaction(
    position: int,
    lag: int,
    seed: int,
    runs: dict[str, list[bytes]],
    firsts: dict[str, int],
    tx_id: str,
    now: int,
) -> tuple[bytes, list[Place]]:
    """What a transaction in one phase writes, and where its messages stand. `firsts` are the
    offsets at which each topic goes on.
    """
    tx_id_bytes, raw_bytes = tx_id.encode(), 0
    rows: list[tuple[str, bytes, int, bytes, int]] = []
    sealed: list[bytes] = []
    for topic, bodies in runs.items():
        joined, name = b"".join(bodies), topic.encode()
        crc = crc32(joined)
        rows.append((topic, name, len(bodies), joined, crc))
        sealed += (SEALED.pack(0, len(bodies), crc, 0), name)
        raw_bytes += len(joined)
    seal = blake2b(b"".join(sealed), digest_size=SEAL_BYTES).digest()
    records, places, at, flags, messages = [], [], position, FIRST, 0
    for topic, name, number, joined, crc in rows:
        head_size = PREFIX.size + TX_HEAD.size + len(name) + len(tx_id_bytes)
        size = head_size + len(joined)
        head = TX_HEAD.pack(
            size, head_size, at, lag + at - position, crc, 5, flags, 0,
            position, firsts[topic], now, number, len(name), 0, len(tx_id_bytes),
        )  # fmt: skip
        records.append(framed(head + name + tx_id_bytes, joined, seed))
        places.append((topic, firsts[topic], number, at))
        at += aligned(size)
        messages += number
        flags = 0
    size = PREFIX.size + DECISION_FRONT.size + len(tx_id_bytes)
    head = DECISION_FRONT.pack(
        size, size, at, lag + at - position, 0, 6, LAST, 0,
        position, now, now, position, len(rows), messages, raw_bytes, seal, 0, 0,
        len(tx_id_bytes), 0, 0,
    )  # fmt: skip
    return b"".join((*records, framed(head + tx_id_bytes, b"", seed))), places


def now_us() -> int:
    return time.time_ns() // 1000


# --- the engine -----------------------------------------------------------------------------------


class Lane:
    """The index of one topic, with one queue."""

    __slots__ = ("counts", "records", "starts")

    def __init__(self) -> None:
        self.starts, self.counts, self.records = array("I"), array("I"), array("I")


class LeastEngine:
    """Topics of one queue in one file. Threads may share it; they do not share syncs."""

    def __init__(self, file: BareFile, topics: tuple[str, ...], seed: int) -> None:
        self._file, self._seed = file, seed
        self._lock = Lock()
        self._lanes = {topic: Lane() for topic in topics}
        self._next = dict.fromkeys(topics, 0)
        self._outcomes: dict[int, int] = {}
        self._numbers = count()

    def send(self, topic: str, body: bytes) -> Receipt:
        if type(body) is not bytes or topic not in self._lanes:
            raise TypeError
        if len(body) > BODY_BYTES_MAX:
            raise ValueError
        with self._lock:
            file, first = self._file, self._next[topic]
            at = file.position
            file.write(message(at, 0, self._seed, topic, body, first, now_us()))
            self._show(topic, first, 1, at)
        return receipt(topic, 0, first, at, 1)

    def transaction(self) -> LeastTransaction:
        return LeastTransaction(self, f"019ab1a2-0000-7000-8000-{next(self._numbers):012x}")

    def commit(self, runs: dict[str, list[bytes]], tx_id: str) -> list[Place]:
        with self._lock:
            file = self._file
            at = file.position
            data, places = transaction(at, 0, self._seed, runs, self._next, tx_id, now_us())
            file.write(data)
            for place in places:
                self._show(*place)
            self._outcomes[crc32(tx_id.encode())] = at
        return places

    def _show(self, topic: str, first: int, number: int, at: int) -> None:
        lane = self._lanes[topic]
        lane.starts.append(first)
        lane.counts.append(number)
        lane.records.append(at)
        self._next[topic] = first + number


class LeastTransaction:
    """Bodies by topic, within a limit; written at the end of the block."""

    def __init__(self, engine: LeastEngine, tx_id: str) -> None:
        self._engine, self._tx_id = engine, tx_id
        self._runs: dict[str, list[bytes]] = {}
        self._room = LARGEST_APPEND_BYTES
        self._is_open = True

    def send(self, topic: str, body: bytes) -> None:
        if type(body) is not bytes or not self._is_open:
            raise TypeError
        room = self._room - len(body)
        if room < 0:
            raise ValueError
        self._room = room
        run = self._runs.get(topic)
        if run is None:
            run = self._runs[topic] = []
        run.append(body)

    def __enter__(self) -> LeastTransaction:
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        self._is_open = False
        if error is None:
            self._engine.commit(self._runs, self._tx_id)
