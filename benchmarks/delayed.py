"""A million messages that wait for their time, beside sqlite3: `python -m benchmarks.delayed`.

Both sides hold the same messages of 100 bytes, each due at a random time of an hour to come. They
are sent by one call each, and made durable after each thousand. Then the process is killed and
opened again, the hour passes, and all of them are published: fmq does so by itself; beside it a
program moves the rows that are due from a table with an index on their time to the table of a
queue, a thousand in each transaction. Each side runs in a process of its own, and its memory is
what that process grew by. Both take turns with each thousand, so a busy machine slows both.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from typing import Any, Protocol

import fmq
from benchmarks.peers import sqlite
from fmq.basics.clock import SystemClock

BODY = bytes(range(100))
BATCH = 1000
HOUR_US = 3_600_000_000
TABLES = (
    "CREATE TABLE IF NOT EXISTS later (id INTEGER PRIMARY KEY, due INTEGER, body BLOB)",
    "CREATE INDEX IF NOT EXISTS by_due ON later (due)",
    "CREATE TABLE IF NOT EXISTS queue (id INTEGER PRIMARY KEY, body BLOB)",
)
MOVE = (
    "INSERT INTO queue (body) SELECT body FROM later WHERE due <= ? ORDER BY due, id LIMIT 1000",
    (
        "DELETE FROM later WHERE id IN "
        "(SELECT id FROM later WHERE due <= ? ORDER BY due, id LIMIT 1000)"
    ),
)


class LaterClock(SystemClock):
    """The machine's clock, which may be set ahead."""

    ahead_us = 0

    def time_us(self) -> int:  # type: ignore[override]
        return time.time_ns() // 1000 + self.ahead_us


class Side(Protocol):
    """One of the two sides, in its own process."""

    def send(self) -> None:
        """Send a thousand messages, and make them durable."""

    def publish(self) -> int:
        """Publish what is due; return how many are published now. The hour has passed."""

    def waiting(self) -> int: ...


class Fmq:
    def __init__(self, directory: str, random: Random) -> None:
        self.clock = LaterClock()
        self.random = random
        self.directory = directory
        self.engine = fmq.open(directory, clock=self.clock)

    def send(self) -> None:
        send, random = self.engine.send, self.random.random
        for _ in range(BATCH):
            send("lane", BODY, delay=7200 + random() * 3600, sync=False)
        self.engine.sync()

    def publish(self) -> int:
        self.engine.close()
        self.clock.ahead_us = 4 * HOUR_US
        self.engine = fmq.open(self.directory, clock=self.clock)
        while self.waiting():
            time.sleep(0.01)
        (queue,) = self.engine.queues("lane")
        return queue.next

    def waiting(self) -> int:
        return self.engine.stats().delayed


class Sqlite:
    def __init__(self, directory: str, random: Random) -> None:
        Path(directory).mkdir(exist_ok=True)
        self.random = random
        self.connection = sqlite.connect(Path(directory))
        for statement in TABLES:
            self.connection.execute(statement)

    def send(self) -> None:
        execute, random = self.connection.execute, self.random.random
        execute("BEGIN")
        for _ in range(BATCH):
            due = time.time_ns() // 1000 + int((7200 + random() * 3600) * 1_000_000)
            execute("INSERT INTO later (due, body) VALUES (?, ?)", (due, BODY))
        execute("COMMIT")

    def publish(self) -> int:
        now = time.time_ns() // 1000 + 4 * HOUR_US
        moved = 1
        while moved:
            self.connection.execute("BEGIN")
            moved = self.connection.execute(MOVE[0], (now,)).rowcount
            self.connection.execute(MOVE[1], (now,))
            self.connection.execute("COMMIT")
        return self._count("queue")

    def waiting(self) -> int:
        return self._count("later")

    def _count(self, table: str) -> int:
        rows: list[tuple[int]] = self.connection.execute(f"SELECT count(*) FROM {table}").fetchall()
        return rows[0][0]


SIDES: dict[str, type[Any]] = {"fmq": Fmq, "sqlite3": Sqlite}


def memory_bytes() -> int:
    """Return how much memory this process has now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def side_main() -> None:
    """Do what stdin says, line by line; answer each with seconds and a number."""
    name, directory = sys.argv[2:4]
    side: Side | None = None
    begun = memory_bytes()
    for line in sys.stdin:
        number = 0
        start = time.perf_counter()
        match line.strip():
            case "open":
                side = SIDES[name](directory, Random(7))
            case "send":
                assert side is not None
                side.send()
            case "publish":
                assert side is not None
                number = side.publish()
            case "waiting":
                assert side is not None
                number = side.waiting()
            case "memory":
                number = memory_bytes() - begun
        print(json.dumps([time.perf_counter() - start, number]), flush=True)


class Process:
    """A side in a process of its own."""

    def __init__(self, name: str, directory: Path) -> None:
        command = [sys.executable, "-m", "benchmarks.delayed", "side", name, str(directory)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)

    def ask(self, what: str) -> tuple[float, int]:
        """Return how long it took, and a number."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(what, file=self._process.stdin, flush=True)
        seconds, number = json.loads(self._process.stdout.readline())
        return seconds, number

    def kill(self) -> None:
        """End it as kill -9 does."""
        self._process.kill()
        self._process.wait()


def measure(messages: int, folder: Path) -> None:
    """Print what both sides take for so many messages."""
    sides = {name: Process(name, folder / name) for name in SIDES}
    found: dict[str, list[str]] = {name: [] for name in SIDES}
    for process in sides.values():
        process.ask("open")
    seconds = dict.fromkeys(SIDES, 0.0)
    for _ in range(messages // BATCH):
        for name, process in sides.items():
            seconds[name] += process.ask("send")[0]
    for name, process in sides.items():
        found[name].append(f"{messages / seconds[name]:>12,.0f}/s")
        assert process.ask("waiting")[1] == messages
        found[name].append(f"{process.ask('memory')[1] / 1e6:>9.1f} MB")
        process.kill()
    for name in SIDES:
        process = sides[name] = Process(name, folder / name)
        found[name].append(f"{process.ask('open')[0]:>9.2f} s")
        found[name].append(f"{process.ask('memory')[1] / 1e6:>9.1f} MB")
    for name, process in sides.items():
        took, published = process.ask("publish")
        assert published == messages, f"{name} has published {published:,}"
        found[name].append(f"{messages / took:>12,.0f}/s")
        found[name].append(f"{process.ask('memory')[1] / 1e6:>9.1f} MB")
        process.kill()
    heads = ("sent", "memory", "opened", "memory", "published", "memory")
    print(f"{'':<10}" + "".join(f"{head:>14}" for head in heads))
    for name, cells in found.items():
        print(f"{name:<10}" + "".join(f"{cell:>14}" for cell in cells))


def main() -> None:
    """Measure, as the command line asks."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.delayed", description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, default=None, help="where the directories are made")
    asked = parser.parse_args()
    print(f"{asked.messages:,} messages of {len(BODY)} bytes, due within an hour;", end=" ")
    print(f"sqlite3 {sqlite3.sqlite_version}, {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
        measure(asked.messages, Path(folder))


if __name__ == "__main__":
    if sys.argv[1:2] == ["side"]:
        side_main()
    else:
        main()
