"""A work queue beside sqlite3 and Redis: `python -m benchmarks.work_queue`.

Each subject has jobs of 100 bytes. A worker takes one, which counts an attempt, and acks it. An
attempt survives a kill of the process, an ack a power cut: in sqlite3, a table by hand in WAL mode,
the UPDATE that takes a job is not synced, and the DELETE that acks it is (synchronous=FULL); fmq
does the same by itself: `fmq` by `poll` and `ack`, `run` as `consumer.run` does, whose ack counts
the attempt of the next job. Redis (a stream with a group, appendfsync always) syncs both. The
subjects take turns in each round, and a ratio is the median of the rounds' ratios.
"""

from __future__ import annotations

import argparse
import multiprocessing
import shutil
import sqlite3
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

import fmq
from benchmarks.peers.programs import find_program

BODY = bytes(range(100))
LEASE = 30.0
AT_ONCE = 1000
IN_PROCESS = {"8 threads": (8, 2400, 1), "by 1,000": (1, 60_000, AT_ONCE)}
ROWS = ("alone", *IN_PROCESS, "8 processes")
ALONE, TURN = 600, 20
PROCESSES, OF_PROCESSES = 8, 2400


class Subject(Protocol):
    """A queue in a directory."""

    def fill(self, jobs: int) -> None:
        """Add jobs."""

    def worker(self) -> Callable[[int], int]:
        """Return what takes and acks up to so many jobs at once, and returns how many there were.
        Called in the thread that calls it then.
        """

    def close(self) -> None: ...


class OfFmq:
    """fmq in this process, or through the process that serves the directory."""

    def __init__(self, directory: Path, *, connects: bool = False) -> None:
        self._stack = ExitStack()
        path = directory / "fmq"
        made = fmq.connect(path) if connects else fmq.open(path)
        self._engine: Any = self._stack.enter_context(made)

    def fill(self, jobs: int) -> None:
        self._engine.send_many("jobs", [BODY] * jobs)

    def worker(self) -> Callable[[int], int]:
        consumer = self._stack.enter_context(self._engine.consumer("jobs", group="g"))

        def work(limit: int) -> int:
            if limit == 1:
                deliveries = consumer.poll(limit=1)
                for delivery in deliveries:
                    delivery.ack()
                return len(deliveries)
            batch = consumer.poll_batch(limit=limit)
            if batch is None:
                return 0
            batch.ack()
            return len(batch)

        return work

    def close(self) -> None:
        self._stack.close()


class OfRun(OfFmq):
    """fmq, as each thread of `consumer.run` uses it."""

    def worker(self) -> Callable[[int], int]:
        consumer = self._stack.enter_context(self._engine.consumer("jobs", group="g"))
        handled: fmq.Delivery | None = None

        def work(limit: int) -> int:
            nonlocal handled
            found = None if handled is None else consumer._advance(handled)
            handled = found or next(iter(consumer.poll(limit=1)), None)
            return int(handled is not None)

        return work


TAKE = """
    UPDATE jobs SET attempts = attempts + 1, taken_until = ? WHERE id IN
    (SELECT id FROM jobs WHERE taken_until < ? ORDER BY id LIMIT ?) RETURNING id, body, attempts
"""


class OfSqlite:
    """A table by hand."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "jobs.db"
        self._db = self._connect("FULL")
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS jobs (id INTEGER PRIMARY KEY, body BLOB, "
            "attempts INTEGER NOT NULL DEFAULT 0, taken_until REAL NOT NULL DEFAULT 0)"
        )

    def _connect(self, synchronous: str) -> sqlite3.Connection:
        db = sqlite3.connect(
            self._path, isolation_level=None, timeout=60.0, check_same_thread=False
        )
        db.execute("PRAGMA journal_mode=WAL")
        db.execute(f"PRAGMA synchronous={synchronous}")
        return db

    def fill(self, jobs: int) -> None:
        self._db.execute("BEGIN")
        self._db.executemany("INSERT INTO jobs (body) VALUES (?)", [(BODY,)] * jobs)
        self._db.execute("COMMIT")

    def worker(self) -> Callable[[int], int]:
        taking, acking = self._connect("NORMAL"), self._connect("FULL")

        def work(limit: int) -> int:
            now = time.time()
            taken = taking.execute(TAKE, (now + LEASE, now, limit)).fetchall()
            if len(taken) == 1:
                acking.execute("DELETE FROM jobs WHERE id = ?", taken[0][:1])
            elif taken:
                acking.execute("BEGIN IMMEDIATE")
                acking.executemany("DELETE FROM jobs WHERE id = ?", [row[:1] for row in taken])
                acking.execute("COMMIT")
            return len(taken)

        return work

    def close(self) -> None:
        self._db.close()


class OfRedis:
    """A stream with a group of consumers, which counts deliveries."""

    def __init__(self, directory: Path, *, at: str = "") -> None:
        from benchmarks.peers.redis_aof import RedisAof

        self._server = None if at else RedisAof(directory)
        self.at = at or self._server.socket  # type: ignore[union-attr]
        self._client = self._connect()
        if not at:
            self._client.xgroup_create("jobs", "g", "0", mkstream=True)

    def _connect(self) -> Any:
        import redis

        return redis.Redis(unix_socket_path=self.at)

    def fill(self, jobs: int) -> None:
        pipeline = self._client.pipeline(transaction=False)
        for _ in range(jobs):
            pipeline.xadd("jobs", {"b": BODY})
        pipeline.execute()

    def worker(self) -> Callable[[int], int]:
        client, name = self._connect(), f"w{time.monotonic_ns()}"

        def work(limit: int) -> int:
            found = client.xreadgroup("g", name, {"jobs": ">"}, count=limit)
            ids = [each for each, _ in found[0][1]] if found else []
            if ids:
                client.xack("jobs", "g", *ids)
            return len(ids)

        return work

    def close(self) -> None:
        if self._server is not None:
            self._server.close()


OWN = {"fmq": OfFmq, "run": OfRun}


def in_process(subject: Subject, workers: int, jobs: int, limit: int) -> float:
    """Return how many jobs a second the threads of this process handle."""
    subject.fill(jobs)
    done, ready = [0] * workers, threading.Barrier(workers + 1)

    def run(number: int) -> None:
        work = subject.worker()
        ready.wait()
        while count := work(limit):
            done[number] += count

    threads = [threading.Thread(target=run, args=(n,)) for n in range(workers)]
    for each in threads:
        each.start()
    ready.wait()
    began = time.perf_counter()
    for each in threads:
        each.join()
    took = time.perf_counter() - began
    assert sum(done) == jobs, f"{sum(done)} of {jobs} jobs"
    return jobs / took


def child(name: str, directory: Path, at: str, ready: Any, begin: Any, told: Any) -> None:
    """Work in a process of its own, until there is no job."""
    subject: Subject
    if name in OWN:
        subject = OWN[name](directory, connects=True)
    else:
        subject = OfSqlite(directory) if name == "sqlite3" else OfRedis(directory, at=at)
    work, count = subject.worker(), 0
    ready.release()
    begin.wait()
    while done := work(1):
        count += done
    told.put(count)
    subject.close()


def in_processes(name: str, subject: Subject, directory: Path) -> float:
    """Return how many jobs a second eight processes handle."""
    subject.fill(OF_PROCESSES)
    spawn = multiprocessing.get_context("spawn")
    ready, begin, told = spawn.Semaphore(0), spawn.Event(), spawn.Queue()
    what = name, directory, getattr(subject, "at", ""), ready, begin, told
    children = [spawn.Process(target=child, args=what) for _ in range(PROCESSES)]
    for each in children:
        each.start()
    for _ in children:
        ready.acquire()
    began = time.perf_counter()
    begin.set()
    counts = [told.get(timeout=120) for _ in children]
    took = time.perf_counter() - began
    for each in children:
        each.join()
    assert sum(counts) == OF_PROCESSES, f"{sum(counts)} of {OF_PROCESSES} jobs"
    return OF_PROCESSES / took


def subjects(home: Path, *, connects: bool) -> dict[str, Subject]:
    """Return an empty queue of each kind."""
    found: dict[str, Subject] = {}
    for name in (*OWN, "sqlite3", *(["redis"] if find_program("redis-server") else [])):
        directory = home / name
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
        if name in OWN:
            found[name] = OWN[name](directory, connects=connects)
        else:
            found[name] = OfSqlite(directory) if name == "sqlite3" else OfRedis(directory)
    return found


def alone(running: dict[str, Subject]) -> dict[str, float]:
    """Return how many jobs a second one worker of each subject handles, in turns of a few jobs:
    what else the machine does meanwhile slows all alike.
    """
    for subject in running.values():
        subject.fill(ALONE)
    work = {name: subject.worker() for name, subject in running.items()}
    took = dict.fromkeys(running, 0.0)
    for _ in range(ALONE // TURN):
        for name, one in work.items():
            began = time.perf_counter()
            for _ in range(TURN):
                assert one(1) == 1
            took[name] += time.perf_counter() - began
    return {name: ALONE / seconds for name, seconds in took.items()}


def one_round(row: str, running: dict[str, Subject], home: Path) -> dict[str, float]:
    """Return the rate of each subject."""
    if row == "alone":
        return alone(running)
    if row in IN_PROCESS:
        one_by_one = IN_PROCESS[row][2] == 1
        return {
            name: in_process(each, *IN_PROCESS[row])
            for name, each in running.items()
            if one_by_one or name != "run"
        }
    return {name: in_processes(name, each, home / name) for name, each in running.items()}


def shown(row: str, rounds: list[dict[str, float]]) -> str:
    """Return the line of a row: rates, and the ratios of fmq to each peer."""
    names = list(rounds[0])
    said = [f"{name} {statistics.median(each[name] for each in rounds):,.0f}/s" for name in names]
    for own in (name for name in names if name in OWN):
        ratios = [
            f"{statistics.median(each[own] / each[name] for each in rounds):.2f} x {name}"
            for name in names
            if name not in OWN
        ]
        said.append(f"{own} is {', '.join(ratios)}")
    return f"{row:12} {', '.join(said)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dir", type=Path, help="where; by default a temporary directory")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=ROWS, help="one of the rows")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.dir) as folder:
        for row in ROWS:
            if asked.only not in (None, row):
                continue
            home = Path(folder, row.replace(" ", "-"))
            home.mkdir()
            running = subjects(home, connects=row == "8 processes")
            one_round(row, running, home)  # warms up
            print(shown(row, [one_round(row, running, home) for _ in range(asked.rounds)]))
            for subject in running.values():
                subject.close()


if __name__ == "__main__":
    main()
