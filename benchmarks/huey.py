"""huey with 8 workers on fmq beside its SQLite storage: `python -m benchmarks.huey`.

The same tasks, with and without a result, done by huey's own consumer, whose workers are threads or
processes. SQLite syncs each commit (`fsync=True`), as fmq does. Beside processes there is RQ on
Redis (`appendfsync always`), where both are. The storages take turns in each round; a rate is the
median of the rounds, and a ratio the median of the rounds' ratios.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import fmq
from benchmarks.peers.programs import find_program

WORKERS = 8
STORAGES = "fmq", "sqlite"
HAS_RQ = find_spec("rq") is not None and find_program("redis-server") is not None


def huey_of(storage: str, directory: Path, kind: str) -> Any:
    """Return a huey. Threads use an engine of their own process, and processes a path."""
    if storage == "sqlite":
        from huey import SqliteHuey

        return SqliteHuey("bench", filename=str(directory / "huey.db"), fsync=True)
    from fmq.compat.huey import FmqHuey

    if kind == "thread":
        return FmqHuey("bench", engine=fmq.open(directory / "jobs"), read_timeout=0.1)
    return FmqHuey("bench", path=directory / "jobs", read_timeout=0.1)


def work(storage: str, directory: Path, kind: str, tasks: int, result: int | None) -> None:
    """Enqueue tasks and do them. Print the seconds for one of each."""
    if storage == "rq":
        from benchmarks.peers import rq_jobs

        print(*rq_jobs.work(directory, WORKERS, tasks, result), flush=True)
        return
    huey = huey_of(storage, directory, kind)
    done = multiprocessing.get_context("fork").Value("q", 0)
    times = multiprocessing.get_context("fork").Array("d", 2)

    def note() -> int | None:
        with done.get_lock():
            done.value += 1
            if done.value in (1, tasks):
                times[done.value == tasks] = time.monotonic()
        return result

    task = huey.task(name="note")(note)
    began = time.monotonic()
    for _ in range(tasks):
        task()
    enqueued = (time.monotonic() - began) / tasks
    consumer = huey.create_consumer(
        workers=WORKERS, worker_type=kind, periodic=False, initial_delay=0.001, max_delay=0.01
    )
    consumer.start()
    while done.value < tasks:
        time.sleep(0.01)
    print(enqueued, (times[1] - times[0]) / (tasks - 1), flush=True)
    consumer.stop(graceful=True)
    huey.storage.close()


def measure(storage: str, kind: str, tasks: int, result: str) -> tuple[float, float]:
    """Return the seconds for one task, to enqueue it and to do it, in a process of their own."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks.huey", "--work", storage, folder, kind, result]
        done = subprocess.run(
            [*command, "--tasks", str(tasks)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            sys.exit(done.stderr)
        enqueued, each = map(float, done.stdout.split())
        return enqueued, each


def show(what: str, found: dict[str, list[float]]) -> None:
    ours = found["fmq"]
    for storage, theirs in found.items():
        if storage != "fmq" and theirs:
            ratio = statistics.median(b / a for a, b in zip(ours, theirs, strict=True))
            rates = [1 / statistics.median(each) for each in (ours, theirs)]
            said = f"(fmq {rates[0]:,.0f}/s, {storage} {rates[1]:,.0f}/s)"
            print(f"{what:40} {ratio:5.2f} x {storage:6} {said}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--work", nargs=4, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.work:
        storage, folder, kind, result = asked.work
        work(storage, Path(folder), kind, asked.tasks, None if result == "none" else 7)
        return
    beside = {"thread": STORAGES, "process": (*STORAGES, *(["rq"] if HAS_RQ else []))}
    enqueued: dict[str, list[float]] = {storage: [] for storage in beside["process"]}
    pick: Callable[[str], str] = {"none": "no result", "some": "a result"}.__getitem__
    for kind in ("thread", "process"):
        for result in ("none", "some"):
            found: dict[str, list[float]] = {storage: [] for storage in beside[kind]}
            for _ in range(asked.rounds):
                for storage in beside[kind]:
                    first, second = measure(storage, kind, asked.tasks, result)
                    found[storage].append(second)
                    if kind == "process":
                        enqueued[storage].append(first)
            show(f"{WORKERS} workers, {kind}, {pick(result)}", found)
    show("enqueue, from one thread", enqueued)


if __name__ == "__main__":
    main()
