#!/usr/bin/env python3
"""Kill tasks, committers and the engine of jobs that write rows: 1 if rows differ at the end.

    python tools/kill_jobs.py DIR --kills 100 --seed 1

A job has three tasks, which run at once, each in a process of its own, as those of Spark do. A task
that dies is done again; some have a twin. A committer that dies is followed by an abort, as Spark
does it, or by nothing, as if the driver had died, and then the job is done again. All of them are
killed with SIGKILL at a point that is drawn. The engine is killed, too. A reader looks all the
while: it must never see a part of a job. At the end each job has to be there once, and nothing may
be undecided. `--plant` puts a bug into the committers, which has to be found.
"""

from __future__ import annotations

import argparse
import os
import pickle
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import pyarrow as pa

import fmq
from fmq.intake import JobPart, WriteJob

OPTIONS = fmq.Options(segment_bytes=1 << 20, first_segment_bytes=64 << 10)
TASKS = 3
SIZES = (0, 3, 300, 300)
"""So many rows a task has. With few a job is one transaction."""
ROWS_AT_ONCE = 25
HOLD_BYTES, PART_BYTES = 500, 4000
TASK_POINTS = ("never", "never", "never", "first", "middle", "any", "after")
COMMIT_POINTS = ("never", "before", "inside", "decided", "any")
BUGS = ("apart", "first", "one by one")
MARK = "job"


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_in(seconds: float) -> None:
    timer = threading.Timer(seconds, die)
    timer.daemon = True
    timer.start()


def body(job: int, task: int, row: int) -> bytes:
    return b"%d-%d-%d-%s" % (job, task, row, b"x" * 40)


def size_of(job: int, task: int) -> int:
    return Random(f"{job} {task}").choice(SIZES)


def rows_of(job: int) -> list[bytes]:
    """Return the rows of a job, in their order."""
    return [body(job, task, row) for task in range(TASKS) for row in range(size_of(job, task))]


def batches(job: int, task: int, point: str) -> Iterator[pa.RecordBatch]:
    rows = [body(job, task, row) for row in range(size_of(job, task))]
    for start in range(0, len(rows), ROWS_AT_ONCE):
        if point == "first" or (point == "middle" and start > len(rows) // 2):
            die()
        yield pa.RecordBatch.from_pydict({"body": rows[start : start + ROWS_AT_ONCE]})


class Dying:
    """A client of the engine whose process dies at `point` of a decision. With `bug`, it decides
    wrongly.
    """

    def __init__(self, engine: Any, point: str, random: Random, bug: str | None = None) -> None:
        self._engine = engine
        self._point = point
        self._random = random
        self._bug = bug

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def decide_many(self, tx_ids: Any, decision: Any, *, mark: Any = None) -> None:
        if self._point == "before":
            die()
        if self._point == "inside":
            die_in(self._random.uniform(0, 0.004))
        if decision == "commit" and self._bug:
            self._decide_wrongly(tx_ids, mark)
        else:
            self._engine.decide_many(tx_ids, decision, mark=mark)
        if self._point == "decided":
            die()

    def _decide_wrongly(self, ids: list[str], mark: Any) -> None:
        def move() -> None:
            with self._engine.transaction() as tx:
                tx.mark(mark[0], mark[1], expect=mark[2])

        if self._bug == "first":
            move()
        for tx_id in ids[1:] if self._bug == "one by one" else []:
            self._engine.decide(tx_id, "commit")
            self._may_die()
        left = ids[:1] if self._bug == "one by one" else ids
        self._may_die()
        self._engine.decide_many(left, "commit", mark=mark if left is not ids else None)
        self._may_die()
        if self._bug == "apart":
            move()

    def _may_die(self) -> None:
        if self._random.random() < 0.1:
            die()


def forked(work: Callable[[], Any]) -> tuple[int, int]:
    """Run `work` in a fork. Return its process id, and a pipe with what it returns."""
    reads, writes = os.pipe()
    if pid := os.fork():
        os.close(writes)
        return pid, reads
    code = 1
    try:
        os.close(reads)
        said = pickle.dumps(work())
        with os.fdopen(writes, "wb") as pipe:
            pipe.write(said)
        code = 0
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
    finally:
        os._exit(code)


def ended(pid: int, pipe: int) -> tuple[int, Any]:
    """Return how a fork has ended, and what it has returned."""
    with os.fdopen(pipe, "rb") as said:
        found = said.read()
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return code, pickle.loads(found) if code == 0 else None


class Run:
    """A directory with an engine, and jobs that are written into it."""

    def __init__(self, path: Path, random: Random, bug: str | None) -> None:
        self.path = path
        self.random = random
        self.bug = bug
        self.killed: dict[str, int] = {}
        self.twins = self.failed = 0
        self._drawn = count()

    def serve(self) -> tuple[int, int]:
        """Start an engine that serves the directory, until it is killed or this process ends."""
        parent = os.getpid()

        def work() -> None:
            with fmq.open(self.path, OPTIONS) as engine, engine.serve():
                while os.getppid() == parent:
                    time.sleep(0.2)

        return forked(work)

    def connected(self) -> Any:
        return fmq.connect(self.path, start=False, retry_for=60.0)

    def task(self, number: int, task: int, attempt: str, point: str) -> tuple[int, int]:
        random, name = self._new_random(), f"{task}-{next(self._drawn)}"

        def work() -> JobPart:
            if point == "any":
                die_in(random.uniform(0, 0.1))
            with self.connected() as engine:
                job = WriteJob(engine, MARK, number, attempt, name)
                rows = batches(number, task, point)
                part = job.write(rows, "t", hold_bytes=HOLD_BYTES, part_bytes=PART_BYTES)
            if point == "after":
                die()
            return part

        return forked(work)

    def committer(self, number: int, attempt: str, parts: list[JobPart], point: str) -> Any:
        random, name = self._new_random(), f"c-{next(self._drawn)}"

        def work() -> bool:
            if point == "any":
                die_in(random.uniform(0, 0.05))
            with self.connected() as engine:
                dying = Dying(engine, point, random, self.bug)
                return WriteJob(dying, MARK, number, attempt, name).commit(parts)

        return forked(work)

    def _new_random(self) -> Random:
        return Random(self.random.random())

    def count(self, what: str, code: int) -> None:
        if code == -signal.SIGKILL:
            self.killed[what] = self.killed.get(what, 0) + 1
        elif code:
            self.failed += 1

    def job(self, number: int) -> None:
        """Do the job with this number, until a committer says that it is done."""
        for attempt in count():
            name = f"{number}-{attempt}"
            parts, late = self._parts_of(number, name)
            point = self.random.choice(COMMIT_POINTS)
            code, done = ended(*self.committer(number, name, parts, point))
            self.count("committers", code)
            for twin in late:
                self.count("twins", ended(*twin)[0])
            if done is not None:
                return
            if self.random.random() < 0.5:
                with self.connected() as engine:
                    WriteJob(engine, MARK, number, name, "abort").abort(parts)

    def _parts_of(self, number: int, attempt: str) -> tuple[list[JobPart], list[tuple[int, int]]]:
        """Return the parts of all tasks, and twins that still run."""

        def start(task: int) -> tuple[int, int]:
            return self.task(number, task, attempt, self.random.choice(TASK_POINTS))

        running, late, parts = [start(task) for task in range(TASKS)], [], []
        for task in range(TASKS):
            if self.random.random() < 0.2:
                self.twins += 1
                late.append(start(task))
        for task in range(TASKS):
            part = None
            while part is None:
                code, part = ended(*running[task])
                self.count("tasks", code)
                if part is None:
                    running[task] = start(task)
            parts.append(part)
        return parts, late


def look(path: Path, stop: int) -> tuple[int, int]:
    """Look until a byte comes through the pipe `stop`. Return how many looks there were, and how
    many of them saw a part of a job.
    """
    looks = halves = 0
    os.set_blocking(stop, False)
    ends = ends_of_jobs()
    known, furthest = {0}, 0
    while True:
        with suppress(BlockingIOError):
            os.read(stop, 1)
            return looks, halves
        with suppress(fmq.FmqError), fmq.open(path, read_only=True) as engine:
            for _ in range(200):
                engine.refresh()
                end = engine.queues("t")[0].next if engine.queues("t") else 0
                while furthest < end:
                    furthest = next(ends)
                    known.add(furthest)
                looks += 1
                halves += end not in known
                time.sleep(0.001)


def ends_of_jobs() -> Iterator[int]:
    """Yield how many rows there are after each job."""
    end = 0
    for number in count():
        end += len(rows_of(number))
        yield end


def run(folder: Path, kills: int, seconds: float, random: Random, bug: str | None) -> int:
    path, began = folder / "shop", time.monotonic()
    fmq.open(path, OPTIONS).close()
    it, (stopped, stop) = Run(path, random, bug), os.pipe()
    engine = it.serve()

    watching = forked(lambda: look(path, stopped))
    for jobs in count():
        enough = sum(it.killed.values()) >= kills or time.monotonic() - began > seconds
        if enough or it.failed > 20:
            break
        if random.random() < 0.2:
            os.kill(engine[0], signal.SIGKILL)
            it.count("engines", ended(*engine)[0])
            engine = it.serve()
        it.job(jobs)
    os.write(stop, b".")
    _, (looks, halves) = ended(*watching)
    with it.connected() as client:
        found = [message.body for message in client.read("t", limit=10_000_000)]
        left = client.undecided()
    os.kill(engine[0], signal.SIGKILL)
    ended(*engine)
    expected = [row for number in range(jobs) for row in rows_of(number)]
    print(f"killed: {it.killed}; {it.twins} twins; {it.failed} ended with an error", flush=True)
    print(
        f"{jobs} jobs, {len(expected)} rows: {len({*expected} - {*found})} lost, "
        f"{len(found) - len({*found})} doubled; {len(left)} transactions left behind; "
        f"{halves} of {looks} looks saw a part of a job",
        flush=True,
    )
    return int(found != expected or bool(left) or bool(halves))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", metavar="DIR", type=Path, nargs="?")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--plant", choices=BUGS)
    args = parser.parse_args()
    folder = (args.folder or Path(tempfile.mkdtemp(prefix="kill-jobs-"))).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    print(f"seed {args.seed}, in {folder}", flush=True)
    # What pyarrow loads for its first rows need not be loaded in each fork.
    pa.array([b""])
    return run(folder, args.kills, args.seconds, Random(args.seed), args.plant)


if __name__ == "__main__":
    sys.exit(main())
