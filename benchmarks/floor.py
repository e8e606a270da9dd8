"""The least that Python has to do for a durable send or transaction: `python -m benchmarks.floor`.

The bytes are those that fmq writes, made by nothing but struct, zlib and hashlib, and written
with one system call: no lock, no index, no limits, nobody else. What fmq takes beyond that is
what its promises cost; what this takes beyond the bare disk is what Python costs. sqlite3 does
the same work in the same run.
"""

from __future__ import annotations

import os
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from zlib import crc32

import fmq
from benchmarks import zeros
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

ROUNDS, CALLS = 9, 700
FILE_BYTES = 64 << 20
PAUSE_SECONDS = 40e-6
BODY = bytes(range(100))
TOPICS = ("a", "b", "c")
TX_ID = "019ab1a2-0000-7000-8000-000000000000"
TABLES = tuple(f"insert into {topic} (body) values (?)" for topic in TOPICS)


def framed(head: bytes, body: bytes, seed: int) -> bytes:
    """A record: magic, checksum, the rest of the head, the bodies, the padding."""
    size = PREFIX.size + len(head) + len(body)
    return b"".join((PREFIX.pack(MAGIC, crc32(head, seed)), head, body, PADDING[size % 8]))


def message(position: int, lag: int, seed: int, topic: bytes, offset: int, now: int) -> bytes:
    """What a single send writes."""
    head_size = PREFIX.size + MESSAGE_HEAD.size + len(topic)
    head = MESSAGE_HEAD.pack(
        head_size + len(BODY), head_size, position, lag, crc32(BODY), 1, FIRST | LAST, 0,
        offset, now, 1, len(topic), 0, 0,
    )  # fmt: skip
    return framed(head + topic, BODY, seed)


def transaction(position: int, lag: int, seed: int, offsets: dict[bytes, int], now: int) -> bytes:
    """What a transaction of ten messages to three queues writes, in one phase."""
    lanes: dict[bytes, list[bytes]] = {}
    for i in range(10):
        lanes.setdefault(TOPICS[i % 3].encode(), []).append(BODY)
    tx_id, raw_bytes = TX_ID.encode(), 0
    runs: list[tuple[bytes, int, bytes, int]] = []
    sealed: list[bytes] = []
    for topic, bodies in lanes.items():
        joined = b"".join(bodies)
        crc = crc32(joined)
        runs.append((topic, len(bodies), joined, crc))
        sealed += (SEALED.pack(0, len(bodies), crc, 0), topic)
        raw_bytes += len(joined)
    seal = blake2b(b"".join(sealed), digest_size=SEAL_BYTES).digest()
    records, at, flags = [], 0, FIRST
    for topic, count, joined, crc in runs:
        head_size = PREFIX.size + TX_HEAD.size + len(topic) + len(tx_id)
        size = head_size + len(joined)
        head = TX_HEAD.pack(
            size, head_size, position + at, lag + at, crc, 5, flags, 0,
            position, offsets[topic], now, count, len(topic), 0, len(tx_id),
        )  # fmt: skip
        records.append(framed(head + topic + tx_id, joined, seed))
        at += aligned(size)
        flags = 0
    size = PREFIX.size + DECISION_FRONT.size + len(tx_id)
    head = DECISION_FRONT.pack(
        size, size, position + at, lag + at, 0, 6, LAST, 0,
        position, now, now, position, len(runs), 10, raw_bytes, seal, 0, 0, len(tx_id), 0, 0,
    )  # fmt: skip
    return b"".join((*records, framed(head + tx_id, b"", seed)))


class BareFile:
    """Zeros that are on the disk, written over from front to back."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        zeros.fill(self._fd, FILE_BYTES)
        self.position = 64

    def write(self, data: bytes) -> None:
        os.pwritev(self._fd, (data,), self.position, os.RWF_DSYNC)
        self.position = (self.position + len(data)) % (FILE_BYTES - (1 << 20))


@contextmanager
def works(folder: Path) -> Iterator[dict[str, Callable[[], object]]]:
    """What is timed, by name."""
    bare, lag, seed, now_ns = BareFile(folder / "bare"), 0, 77, time.time_ns
    offsets = {topic.encode(): 5 for topic in TOPICS}
    db = sqlite3.connect(folder / "peer.db", isolation_level=None)
    db.execute("pragma journal_mode = wal")
    db.execute("pragma synchronous = full")
    for topic in TOPICS:
        db.execute(f"create table {topic} (id integer primary key, body blob)")

    def after_work() -> None:
        until = time.perf_counter() + PAUSE_SECONDS
        while time.perf_counter() < until:
            pass
        bare.write(BODY)

    def sqlite_transaction() -> None:
        db.execute("begin")
        for i in range(10):
            db.execute(TABLES[i % 3], (BODY,))
        db.execute("commit")

    with fmq.open(folder / "fmq") as engine:

        def fmq_transaction() -> None:
            with engine.transaction() as tx:
                for i in range(10):
                    tx.send(TOPICS[i % 3], BODY)

        yield {
            "the disk alone": lambda: bare.write(BODY),
            f"the disk, {PAUSE_SECONDS * 1e6:.0f} us after the last": after_work,
            "send: its bytes": lambda: bare.write(
                message(bare.position, lag, seed, b"a", 5, now_ns() // 1000)
            ),
            "send: fmq": lambda: engine.send("a", BODY),
            "send: sqlite3": lambda: db.execute(TABLES[0], (BODY,)),
            "transaction: its bytes": lambda: bare.write(
                transaction(bare.position, lag, seed, offsets, now_ns() // 1000)
            ),
            "transaction: fmq": fmq_transaction,
            "transaction: sqlite3": sqlite_transaction,
        }
    db.close()


def main() -> None:
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder, works(Path(folder)) as all_works:
        taken: dict[str, list[float]] = {name: [] for name in all_works}
        for _ in range(ROUNDS):
            for name, work in all_works.items():
                started = time.perf_counter()
                for _ in range(CALLS):
                    work()
                spent = (time.perf_counter() - started) / CALLS
                if "after" in name:
                    spent -= PAUSE_SECONDS
                taken[name].append(spent * 1e6)
    alone = statistics.median(taken["the disk alone"])
    for name, each in taken.items():
        median = statistics.median(each)
        print(f"{name:28} {median:6.0f} us  {median / alone:5.2f} x the disk alone")


if __name__ == "__main__":
    main()
