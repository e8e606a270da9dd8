"""Reading 1,000,000 stored messages from first to last: how many a second?

Bodies of mixed length, bodies of one length, as message objects, and messages that had been sent
one by one. The files are in the page cache. fmq verifies every checksum; lmdb has none, sqlite3
none by default.
"""

from __future__ import annotations

import time
from functools import partial

from benchmarks.loop import Effort, Measured
from benchmarks.peers import open_peer
from benchmarks.row import Goal, Row
from benchmarks.stock import Stock

STORED = 1_000_000
PEERS = ("lmdb", "sqlite3", "rocksdict")


def measure(subject: str, effort: Effort, *, stock: Stock, kind: str) -> Measured:
    peer = open_peer(subject, stock.place(subject, effort))
    started = time.perf_counter()
    count = peer.scan(kind)
    elapsed = time.perf_counter() - started
    peer.close()
    assert count >= effort.scaled(stock.count), f"{subject}: only {count:,} messages were read"
    return Measured(count / elapsed)


def row(name: str, title: str, stock: Stock, kind: str, goal: float) -> Row:
    return Row(
        name=name,
        title=f"read 1,000,000: {title}",
        unit="msgs/s",
        work=partial(measure, stock=stock, kind=kind),
        subjects=("fmq", *PEERS),
        goals=(Goal("figure", goal),),
        stock=(stock,),
    )


MIXED = Stock(STORED, mixed=True)
EQUAL = Stock(STORED)
SINGLY = Stock(STORED, singly=True)

ROWS = (
    row("read-mixed", "bodies of mixed length", MIXED, "bodies", 7_500_000),
    row("read-equal", "bodies of equal length", EQUAL, "bodies", 15_000_000),
    row("read-objects", "as objects", EQUAL, "objects", 2_500_000),
    row("read-singly", "stored one by one", SINGLY, "bodies", 800_000),
)
