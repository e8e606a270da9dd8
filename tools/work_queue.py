#!/usr/bin/env python3
"""Kill the workers and the server of a work queue: 1 if a job is lost, done twice or miscounted.

    python tools/work_queue.py DIR --kills 20 --seed 7

Three processes take jobs through `fmq.connect`. A good job is a row in a database of SQLite, in one
transaction with its ack. A flaky one fails at its first attempts, a delayed one must not come
early. A poison job always fails, or kills its process. Meanwhile a worker or the server is killed
with SIGKILL, again and again. In the end each good job has its row, each poison one is a dead
letter, and no attempt has had the number of another.
"""

from __future__ import annotations

import argparse
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import fmq
import fmq.bind
from fmq.errors import FmqError, LeaseLost

WORKERS, ATTEMPTS, FLAKY_FAILURES = 3, 5, 2
PATIENCE_SECONDS = 120.0
OPTIONS = fmq.Options(
    check_after_seconds=0.5,
    check_backoff_seconds=0.5,
    lease_seconds=5.0,
    member_timeout_seconds=5.0,
    reclaim_seconds=1.0,
    segment_bytes=1 << 20,
    retain_bytes=4 << 20,
)
TABLES = """
    CREATE TABLE done (job TEXT PRIMARY KEY);
    CREATE TABLE tries (job TEXT, attempt INTEGER, PRIMARY KEY (job, attempt));
    CREATE TABLE wrong (what TEXT);
"""


# --- a worker -------------------------------------------------------------------------------------


class JobFailed(Exception):
    """A job cannot be done, this time."""


class Worker:
    """One process that handles jobs until it is killed."""

    def __init__(self, home: Path) -> None:
        self.db = database(home)
        self.notes = database(home)  # outside of the transactions of jobs
        resolve = {"worker": f"sqlite:///{home / 'ledger.db'}"}
        self.engine = fmq.connect(home / "queue", OPTIONS, resolve=resolve)
        retry = fmq.Retry(ATTEMPTS, backoff=0.05)
        self.jobs = self.engine.consumer("jobs", group="workers", retry=retry)

    def run(self) -> None:
        """Handle what comes. A job that fails is given back, or becomes a dead letter."""
        for delivery in self.jobs:
            # Lost: the server was killed, and somebody else has the job now.
            with suppress(LeaseLost, JobFailed), delivery:
                self.handle(delivery)

    def handle(self, delivery: fmq.Delivery) -> None:
        """Do a job, or fail."""
        job, attempt = delivery.body.decode(), delivery.attempt
        kind, _, due = job.split(" ")
        try:
            with self.notes:
                self.notes.execute("INSERT INTO tries VALUES (?, ?)", (job, attempt))
        except sqlite3.IntegrityError:
            self.complain(f"{job}: a second attempt {attempt}")
        if attempt > ATTEMPTS:
            self.complain(f"{job}: attempt {attempt}")
        if kind == "deadly":
            os.kill(os.getpid(), signal.SIGKILL)
        if kind == "poison" or (kind == "flaky" and attempt <= FLAKY_FAILURES):
            raise JobFailed(f"{kind} at attempt {attempt}")
        if time.time() < float(due):
            self.complain(f"{job}: it came {float(due) - time.time():.3f} s early")
        self.do(job, delivery)

    def do(self, job: str, delivery: fmq.Delivery) -> None:
        """Write the row of a job and ack it, both or neither."""
        try:
            with self.engine.transaction(producer="worker", bind=self.db) as tx:
                self.db.execute("INSERT INTO done VALUES (?)", (job,))
                tx.ack(delivery)
        except sqlite3.IntegrityError:
            self.complain(f"{job}: done a second time")
            raise

    def complain(self, what: str) -> None:
        with self.notes:
            self.notes.execute("INSERT INTO wrong VALUES (?)", (what,))


def database(home: Path) -> sqlite3.Connection:
    """Return a connection to the ledger, as durable as fmq."""
    db = sqlite3.connect(home / "ledger.db", timeout=30.0)
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("PRAGMA synchronous=FULL")
    return db


# --- around them ----------------------------------------------------------------------------------


def start(home: Path) -> subprocess.Popen[bytes]:
    """Start a worker."""
    return subprocess.Popen([sys.executable, __file__, "--work", str(home)])


def servers(path: Path) -> list[int]:
    """Return the processes that serve `path`."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            words = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
            if b"serve" in words and os.fsencode(path) in words:
                found.append(int(name))
    return found


def kill(process: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


def send(engine: fmq.RemoteEngine, number: int, random: Random) -> str:
    """Send one job; return it."""
    kinds = ("good", "flaky", "delayed", "poison", "deadly")
    (kind,) = random.choices(kinds, (70, 12, 12, 4, 2))
    if number < len(kinds):
        kind = kinds[number]  # one of each at least
    delay = random.uniform(0.2, 2.0) if kind == "delayed" else 0.0
    job = f"{kind} {number} {time.time() + delay:.6f}"
    if delay:
        engine.send("jobs", job.encode(), delay=delay)
    else:
        engine.send("jobs", job.encode())
    return job


def run(home: Path, kills: int, jobs: int, random: Random) -> list[str]:
    """Let the queue run, and return what was wrong."""
    with closing(database(home)) as db:
        db.executescript(TABLES)
        fmq.bind.create_table(db)
        db.commit()
    workers = [start(home) for _ in range(WORKERS)]
    sent: list[str] = []
    killed: Counter[str] = Counter()
    try:
        with fmq.connect(home / "queue", OPTIONS) as engine:
            next_kill = time.monotonic() + 1.0
            while len(sent) < jobs or killed.total() < kills:
                if len(sent) < jobs:
                    sent.append(send(engine, len(sent), random))
                if killed.total() < kills and time.monotonic() >= next_kill:
                    next_kill = time.monotonic() + random.uniform(0.2, 0.8)
                    if random.random() < 0.4:
                        for process in servers(home / "queue"):
                            kill(process)
                        killed["server"] += 1
                    else:
                        kill(random.choice(workers).pid)
                        killed["worker"] += 1
                restart(workers, home)
                time.sleep(random.uniform(0, 0.02))
            print(f"{len(sent)} jobs sent; killed: {dict(killed)}", flush=True)
            return wait(home, engine, workers, sent)
    finally:
        for each in workers:
            each.kill()
            each.wait()
        for process in servers(home / "queue"):
            kill(process)


def restart(workers: list[subprocess.Popen[bytes]], home: Path) -> None:
    for i, each in enumerate(workers):
        if each.poll() is not None:
            workers[i] = start(home)


def wait(
    home: Path, engine: fmq.RemoteEngine, workers: list[subprocess.Popen[bytes]], sent: list[str]
) -> list[str]:
    """Wait until all is done, and return what is wrong then."""
    bad = {job for job in sent if job.split(" ")[0] in ("poison", "deadly")}
    good = set(sent) - bad
    ends = time.monotonic() + PATIENCE_SECONDS
    done: set[str] = set()
    dead: list[fmq.DeadLetter] = []
    with closing(database(home)) as db:
        while time.monotonic() < ends and (done != good or len(dead) < len(bad)):
            time.sleep(0.2)
            restart(workers, home)
            done = {job for (job,) in db.execute("SELECT job FROM done")}
            with suppress(FmqError):
                dead = engine.dead_letters("workers").list(limit=len(sent))
        tries: dict[str, list[int]] = {}
        for job, attempt in db.execute("SELECT job, attempt FROM tries ORDER BY job, attempt"):
            tries.setdefault(job, []).append(attempt)
        wrong = [what for (what,) in db.execute("SELECT what FROM wrong")]
    wrong += [f"{job}: not done" for job in sorted(good - done)]
    wrong += [f"{job}: done, and nobody sent it" for job in sorted(done - good)]
    buried = Counter(letter.body.decode() for letter in dead)
    wrong += [f"{job}: {buried[job]} dead letters" for job in sorted(bad) if buried[job] != 1]
    wrong += [f"{job}: a dead letter" for job in buried if job not in bad]
    for letter in dead:
        job = letter.body.decode()
        if letter.attempts != ATTEMPTS or max(tries.get(job, [0])) > ATTEMPTS:
            wrong.append(f"{job}: {letter.attempts} attempts, and it had {tries.get(job)}")
    wrong += [f"it is still undecided: {tx.tx_id}" for tx in engine.undecided()]
    print(
        f"{len(done)} of {len(good)} good jobs are done, {len(dead)} of {len(bad)} poison ones are "
        f"dead letters after {ATTEMPTS} attempts",
        flush=True,
    )
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path, nargs="?", metavar="DIR")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.work is not None:
        Worker(asked.work).run()
    if asked.directory is None:
        parser.error("name a directory")
    asked.directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=asked.directory) as folder:
        wrong = run(Path(folder), asked.kills, asked.jobs, Random(asked.seed))
        fmq.open(Path(folder, "queue"), timeout=30).close()  # the server may be dying still
        problems = fmq.check(Path(folder, "queue")).problems
    wrong += [str(each) for each in problems]
    for what in wrong:
        print(what)
    print(f"seed {asked.seed}: " + (f"{len(wrong)} wrong" if wrong else "each job as it must be"))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
