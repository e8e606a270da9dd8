#!/usr/bin/env python3
"""A limit of so many at once, seen by the handlers, while workers and the server are killed.

    python tools/limits.py DIR --seed 7 --minutes 2

Four processes take jobs of a group whose limit is three at once, in one to three at a time, from a
topic with four queues. Each notes in a file when it has a job and when it is done with it. Every
half second or so one of them, or the server, is killed with SIGKILL and started again. In the end
the notes are compared: at no moment may more than three jobs have been in work. A job of a worker
that was killed ends when it was told to die, so what is found was so.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent.parent))

import fmq
from fmq.errors import FmqError

WORKERS = 4
LIMIT = 3
JOBS = 40_000  # enough for half an hour
HANDLING_SECONDS = 0.02
NEAR_NS = 1_000_000_000  # what happened this close to a moment with too many is printed


class Note(NamedTuple):
    """That a process has begun or ended one job."""

    at: int  # nanoseconds of the clock that all processes of the machine share
    pid: int
    what: str
    job: str


def work(directory: str, notes: str, seed: int) -> None:
    """Take jobs until this process is killed."""
    rng, pid = random.Random(seed), os.getpid()
    file = os.open(notes, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(what: str, job: str) -> None:
        os.write(file, f"{time.monotonic_ns()} {pid} {what} {job}\n".encode())

    client = fmq.connect(directory)
    with client.consumer("jobs", group="workers", lease_seconds=60.0) as consumer:
        while True:
            taken = consumer.poll(limit=rng.randint(1, LIMIT), timeout=10.0)
            for each in taken:
                note("begin", f"{each.queue}/{each.offset}")
            for each in taken:
                time.sleep(rng.random() * HANDLING_SECONDS)
                note("end", f"{each.queue}/{each.offset}")
                try:
                    each.ack()
                except FmqError as error:
                    note("lost", type(error).__name__)


class Job(NamedTuple):
    """A job while a process had it in work."""

    begin: int
    end: int
    pid: int
    job: str


def jobs_in(notes: list[Note], killed: dict[int, int]) -> list[Job]:
    """Return all jobs that were begun. `killed` says when each process was told to die."""
    found: list[Job] = []
    open_jobs: dict[tuple[int, str], int] = {}
    for note in notes:
        if note.what == "begin":
            open_jobs[note.pid, note.job] = note.at
        elif note.what == "end":
            found.append(Job(open_jobs.pop((note.pid, note.job)), note.at, note.pid, note.job))
    for (pid, job), at in open_jobs.items():
        found.append(Job(at, max(killed[pid], at), pid, job))
    return found


def most_at_once(jobs: list[Job]) -> list[Job]:
    """Return the jobs of the first moment at which the most were in work at once."""
    most: list[Job] = []
    now: list[Job] = []
    for job in sorted(job for job in jobs if job.end > job.begin):
        # What ends at a moment comes before what begins.
        now = [each for each in now if each.end > job.begin] + [job]
        if len(now) > len(most):
            most = now
    return most


class Machine:
    """The processes, and when those that were killed were told to die."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.directory = directory
        self.notes = directory.parent / f"{directory.name}.notes"
        self.rng = random.Random(seed)
        self.killed: dict[int, int] = {}
        self.kills = 0
        self.server = self._serve()
        self.workers = [self._work() for _ in range(WORKERS)]

    def _serve(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "fmq", "serve", str(self.directory)]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def _work(self) -> subprocess.Popen[bytes]:
        what = "--work", str(self.notes), "--seed", str(self.rng.randrange(1 << 30))
        return subprocess.Popen([sys.executable, __file__, str(self.directory), *what])

    def _kill(self, process: subprocess.Popen[bytes]) -> None:
        self.killed[process.pid] = time.monotonic_ns()
        process.send_signal(signal.SIGKILL)
        process.wait()

    def kill_one(self) -> None:
        """Kill a worker or the server, and start it again."""
        self.kills += 1
        if self.rng.random() < 0.3:
            self._kill(self.server)
            self.server = self._serve()
        else:
            number = self.rng.randrange(WORKERS)
            self._kill(self.workers[number])
            self.workers[number] = self._work()

    def end(self) -> None:
        for each in (*self.workers, self.server):
            self._kill(each)

    def noted(self) -> list[Note]:
        if not self.notes.exists():
            return []
        found = [line.split() for line in self.notes.read_text().splitlines()]
        return [Note(int(at), int(pid), what, job) for at, pid, what, job in found]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("directory", metavar="DIR", type=Path, help="must not exist")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--kills", type=int, help="end after so many")
    parser.add_argument("--work", metavar="NOTES", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.work:
        work(str(args.directory), args.work, args.seed)
    with fmq.open(args.directory, fmq.Options(queues=4)) as engine:
        engine.send_many("jobs", [fmq.Message(b"", key=str(each)) for each in range(JOBS)])
        engine.create_group("workers", "jobs")
        engine.group("workers").limit(concurrency=LIMIT, reason="the test of limits")
    until = time.monotonic() + args.minutes * 60
    machine = Machine(args.directory, args.seed)
    try:
        while time.monotonic() < until and machine.kills != args.kills:
            before = len(machine.noted())
            while len(machine.noted()) < before + 40 and time.monotonic() < until:
                time.sleep(0.05)  # what was killed is back, and the work goes on
            time.sleep(machine.rng.random() * 0.2)
            machine.kill_one()
    finally:
        machine.end()
    notes = machine.noted()
    jobs = jobs_in(notes, machine.killed)
    most = most_at_once(jobs)
    lost = sum(each.what == "lost" for each in notes)
    print(
        f"seed {args.seed}: {len(jobs):,} jobs, {machine.kills} kills, {lost} leases lost, at most "
        f"{len(most)} at once, and the limit is {LIMIT}"
    )
    if len(most) <= LIMIT:
        return 0
    moment = most[-1].begin
    for job in most:
        span = f"{_ms(job.begin - moment)} to {_ms(job.end - moment)}"
        print(f"  {job.job} of process {job.pid}: {span}")
    for pid, at in machine.killed.items():
        if abs(at - moment) < NEAR_NS:
            print(f"  process {pid} was killed at {_ms(at - moment)}")
    for note in notes:
        if abs(note.at - moment) < NEAR_NS:
            print(f"  {_ms(note.at - moment)}: process {note.pid}, {note.what} {note.job}")
    return 1


def _ms(ns: int) -> str:
    return f"{ns / 1e6:.1f} ms"


if __name__ == "__main__":
    sys.exit(main())
