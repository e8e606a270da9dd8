"""The least that Python has to do for a durable send or transaction: `python -m benchmarks.floor`.

Three steps, each of which does the work of the one before: the disk alone; the bytes that fmq
writes, made by nothing but struct, zlib and hashlib; and the least of an engine around them
(least.py), with a lock, offsets, limits, an index and receipts, and nothing that survives anything.
What fmq takes beyond that is what its promises cost. sqlite3 does the same work in the same run.
"""

from __future__ import annotations

import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import fmq
from benchmarks.least import BareFile, LeastEngine, message, now_us, transaction

ROUNDS, CALLS = 9, 700
PAUSE_SECONDS = 40e-6
BODY = bytes(range(100))
TOPICS = ("a", "b", "c")
TX_ID = "019ab1a2-0000-7000-8000-000000000000"
TABLES = tuple(f"insert into {topic} (body) values (?)" for topic in TOPICS)


def ten() -> dict[str, list[bytes]]:
    """Ten messages for three queues."""
    runs: dict[str, list[bytes]] = {}
    for i in range(10):
        runs.setdefault(TOPICS[i % 3], []).append(BODY)
    return runs


@contextmanager
def works(folder: Path) -> Iterator[dict[str, Callable[[], object]]]:
    """What is timed, by name."""
    bare, lag, seed = BareFile(folder / "bare"), 0, 77
    firsts = dict.fromkeys(TOPICS, 5)
    least = LeastEngine(BareFile(folder / "least"), TOPICS, seed)
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

    def least_transaction() -> None:
        with least.transaction() as tx:
            for i in range(10):
                tx.send(TOPICS[i % 3], BODY)

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
                message(bare.position, lag, seed, "a", BODY, 5, now_us())
            ),
            "send: the least of an engine": lambda: least.send("a", BODY),
            "send: fmq": lambda: engine.send("a", BODY),
            "send: sqlite3": lambda: db.execute(TABLES[0], (BODY,)),
            "transaction: its bytes": lambda: bare.write(
                transaction(bare.position, lag, seed, ten(), firsts, TX_ID, now_us())[0]
            ),
            "transaction: the least of an engine": least_transaction,
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
        print(f"{name:36} {median:6.0f} us  {median / alone:5.2f} x the disk alone")


if __name__ == "__main__":
    main()
