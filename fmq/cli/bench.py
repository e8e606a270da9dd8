"""`fmq bench`: how fast this machine makes things durable, fmq beside the disk and SQLite.

Whoever is measured takes turns of a fraction of a second, so that what else the machine does
meets all alike, and the median turn counts. Everything is durable before the next call: fmq
with its defaults, SQLite with a write-ahead log and synchronous=FULL, the disk by a loop that
does nothing but overwrite zeros, synced, in one system call each.
"""

from __future__ import annotations

import argparse
import os
import platform
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import fmq
from fmq.cli.arguments import seconds
from fmq.cli.codes import FINE
from fmq.cli.output import Column, Output

BODY = b"x" * 100
MANY = [BODY] * 100
RAW_FILE_BYTES = 16 << 20
RAW_HEAD = bytes(72)  # about what fmq adds to a record's bodies: head, names, padding
ROUNDS = 8
CALLS_BETWEEN_LOOKS = 8  # at the clock


@dataclass(slots=True)
class Work:
    """Something measured: one call makes `messages` durable."""

    name: str
    messages: int
    call: Callable[[], object]
    rates: list[float] = field(default_factory=list)
    """Calls a second, one for each turn."""

    @property
    def peer(self) -> str:
        return self.name.split()[0]

    @property
    def calls_per_second(self) -> float:
        return statistics.median(self.rates)


def add_to(verbs: Any, common: argparse.ArgumentParser) -> None:
    parser = verbs.add_parser(
        "bench", parents=[common], help="ten seconds of sends on this machine", description=__doc__
    )
    parser.add_argument("--seconds", type=seconds, default=10.0, help="in all; 10 by default")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace, output: Output) -> int:
    # Here and not in the system's own place, which may be memory.
    with tempfile.TemporaryDirectory(dir=".", prefix="fmq-bench-") as path, ExitStack() as stack:
        works = [
            *stack.enter_context(_raw(path)),
            *stack.enter_context(_fmq(path)),
            *stack.enter_context(_sqlite(path)),
        ]
        turn = args.seconds / (ROUNDS * len(works))
        for _ in range(ROUNDS):
            for work in works:
                work.rates.append(_rate(work.call, turn))
    output.facts("machine", _machine(args.seconds), MACHINE, title="fmq bench")
    rows = list(_results(works))
    output.rows("work", RESULTS, rows, title=f"durable, bodies of {len(BODY)} B, one thread")
    return FINE


def _rate(call: Callable[[], object], seconds: float) -> float:
    """Calls a second, during about so many seconds."""
    started = now = time.perf_counter()
    calls = 0
    while now < started + seconds:
        for _ in range(CALLS_BETWEEN_LOOKS):
            call()
        calls += CALLS_BETWEEN_LOOKS
        now = time.perf_counter()
    return calls / (now - started)


@contextmanager
def _raw(path: str) -> Iterator[list[Work]]:
    fd = os.open(os.path.join(path, "raw"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        os.pwrite(fd, bytes(RAW_FILE_BYTES), 0)
        os.fsync(fd)
        place = 0

        def write(data: bytes) -> None:
            nonlocal place
            if place + len(data) > RAW_FILE_BYTES:
                place = 0
            os.pwritev(fd, (data,), place, os.RWF_DSYNC)
            place += len(data)

        one, many = RAW_HEAD + BODY, RAW_HEAD + b"".join(MANY)
        yield [
            Work("raw write of one", 1, lambda: write(one)),
            Work("raw write of 100", 100, lambda: write(many)),
        ]
    finally:
        os.close(fd)


@contextmanager
def _fmq(path: str) -> Iterator[list[Work]]:
    with fmq.open(os.path.join(path, "fmq")) as engine:
        yield [
            Work("fmq send of one", 1, lambda: engine.send("topic", BODY)),
            Work("fmq send_many of 100", 100, lambda: engine.send_many("topic", MANY)),
        ]


@contextmanager
def _sqlite(path: str) -> Iterator[list[Work]]:
    connection = sqlite3.connect(os.path.join(path, "sqlite.db"), isolation_level=None)
    try:
        execute = connection.execute
        execute("PRAGMA journal_mode=WAL")
        execute("PRAGMA synchronous=FULL")
        settings = [
            execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")
        ]
        assert settings == ["wal", 2], settings
        execute("CREATE TABLE queue (id INTEGER PRIMARY KEY, body BLOB)")
        insert = "INSERT INTO queue (body) VALUES (?)"
        one, many = (BODY,), [(body,) for body in MANY]

        def send_many() -> None:
            execute("BEGIN IMMEDIATE")
            connection.executemany(insert, many)
            execute("COMMIT")

        yield [
            Work("sqlite3 insert of one", 1, lambda: execute(insert, one)),
            Work("sqlite3 insert of 100", 100, send_many),
        ]
    finally:
        connection.close()


def _results(works: list[Work]) -> Iterator[dict[str, Any]]:
    for work in sorted(works, key=lambda work: work.messages):
        alike = {other.peer: other for other in works if other.messages == work.messages}
        calls = work.calls_per_second
        yield {
            "work": work.name,
            "calls_per_second": round(calls),
            "messages_per_second": round(calls * work.messages),
            "microseconds": round(1e6 / calls, 1),
            "of_raw": round(calls / alike["raw"].calls_per_second, 3),
            "of_sqlite": round(calls / alike["sqlite3"].calls_per_second, 3),
            "spread": round((max(work.rates) - min(work.rates)) / calls, 3),
        }


def _machine(seconds: float) -> dict[str, Any]:
    return {
        "python": platform.python_version(),
        "implementation": sys.implementation.name,
        "kernel": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processors": len(os.sched_getaffinity(0)),
        "sqlite": sqlite3.sqlite_version,
        "fmq": fmq.__version__,
        "directory": os.getcwd(),
        "seconds": seconds,
        "rounds": ROUNDS,
    }


def _times(ratio: float) -> str:
    return f"{ratio:.2f} x"


MACHINE = (
    Column("", "machine", of_row=lambda row: f"{row['processors']} processors, {row['kernel']}"),
    Column(
        "",
        "software",
        of_row=lambda row: f"fmq {row['fmq']}, Python {row['python']}, SQLite {row['sqlite']}",
    ),
    Column("directory", "directory"),
    Column(
        "",
        "method",
        of_row=lambda row: (
            f"{row['seconds']:g} s, {row['rounds']} turns each, interleaved; the median counts"
        ),
    ),
)
RESULTS = (
    Column("work", "work", style="bold"),
    Column("messages_per_second", "messages/s", right=True),
    Column("calls_per_second", "calls/s", right=True),
    Column("microseconds", "us/call", right=True, show=lambda value: f"{value:,.1f}"),
    Column("of_raw", ": raw", right=True, show=_times),
    Column("of_sqlite", ": sqlite3", right=True, show=_times),
    Column("spread", "spread", right=True, show=lambda value: f"{value:.0%}", style="dim"),
)
