#!/usr/bin/env python3
"""Kill Celery's worker, its client and the server again and again: 1 if a task is lost or made up.

    python tools/kill_celery.py DIR --kills 20 --seed 1

A client places orders: a row in sqlite3 and a Celery task, in one bound block. Workers do the
tasks, each of which writes a line. All the time one of the three is killed by kill -9 and started
again. At the end each order was done, and nothing was done for which there is no order. A task
that was in work when its worker was killed may be done twice.
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
from contextlib import suppress
from itertools import count
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from celery import Celery

import fmq.bind
import fmq.compat.kombu  # makes fmq:// known
from tools.kill_servers import kill, servers

ROOT = Path(__file__).resolve().parent.parent
FOLDER = Path(os.environ.get("KILL_CELERY", "."))
PATIENCE_SECONDS = 60.0
SETTLED_SECONDS = 150.0  # what a kill has left undecided is asked about after 60
app = Celery("kill", broker=f"fmq://{FOLDER}/jobs")
app.conf.update(
    broker_connection_retry_on_startup=True,
    task_acks_late=True,
    task_ignore_result=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=1,
)


@app.task(name="do")  # type: ignore[untyped-decorator]
def do(order: str) -> None:
    """Write that `order` is done, in one write: a kill leaves no half of a line."""
    sum(range(500_000))  # for a while, so that a kill finds it in work
    ledger = os.open(FOLDER / "ledger", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(ledger, f"{order}\n".encode())
    os.close(ledger)


def database() -> sqlite3.Connection:
    connection = sqlite3.connect(FOLDER / "shop.db")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE IF NOT EXISTS orders (name TEXT PRIMARY KEY)")
    fmq.bind.create_table(connection)
    return connection


def client(name: str) -> None:
    """Place orders until SIGTERM; what was begun is ended."""
    stops: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stops.append(number))
    shop = database()
    with fmq.connect(FOLDER / "jobs", resolve={"shop": f"sqlite:///{FOLDER}/shop.db"}) as engine:
        engine.settle()  # what the client before has left undecided
        for number in count():
            if stops:
                break
            order = f"{name}-{number}"
            with engine.transaction(producer="shop", bind=shop):
                shop.execute("INSERT INTO orders VALUES (?)", (order,))
                do.delay(order)
            time.sleep(0.005)


class Run:
    """One run of a worker, a client and a server."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._environment = {**os.environ, "KILL_CELERY": str(folder), "PYTHONPATH": str(ROOT)}
        self._clients = count()
        self._log = (folder / "log").open("ab")
        self.worker = self._start_worker()
        self.client = self._start_client()

    def _start(self, *arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, *arguments],
            env=self._environment,
            cwd=ROOT,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )

    def _start_worker(self) -> subprocess.Popen[bytes]:
        command = "-m", "celery", "-A", "tools.kill_celery", "worker"
        return self._start(*command, "-c", "2", "--loglevel", "WARNING")

    def _start_client(self) -> subprocess.Popen[bytes]:
        return self._start(__file__, str(self._folder), "--client", f"c{next(self._clients)}")

    def kill(self, whom: str) -> None:
        """Kill one of the three, and start it again if it does not start by itself."""
        if whom == "server":
            kill(self._folder / "jobs")
        elif whom == "worker":
            _kill_group(self.worker)
            self.worker = self._start_worker()
        else:
            _kill_group(self.client)
            self.client = self._start_client()

    def done(self) -> Counter[str]:
        """Return how often each order was done."""
        with suppress(FileNotFoundError):
            return Counter((self._folder / "ledger").read_text().splitlines())
        return Counter()

    def orders(self) -> set[str]:
        """Return the orders that were committed."""
        with suppress(sqlite3.OperationalError):
            connection = sqlite3.connect(self._folder / "shop.db")
            found = {name for (name,) in connection.execute("SELECT name FROM orders")}
            connection.close()
            return found
        return set()

    def end(self) -> None:
        for each in (self.worker, self.client):
            _kill_group(each)
        kill(self._folder / "jobs")
        self._log.close()


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _until(run: Run, more_than: int) -> None:
    """Wait until more orders are done: all three processes work."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(run.done()) <= more_than:
        if time.monotonic() > deadline:
            raise TimeoutError(f"no order was done for {PATIENCE_SECONDS:g} s")
        time.sleep(0.02)


def run(directory: Path, kills: int, seed: int) -> str:
    """Return what happened. Raises AssertionError if a task was lost, or made up."""
    random = Random(seed)
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory) as name:
        folder = Path(name)
        running = Run(folder)
        try:
            for _ in range(kills):
                _until(running, len(running.done()) + random.randrange(20))
                running.kill(random.choice(["worker", "worker", "client", "server"]))
            _until(running, len(running.done()))
            running.client.terminate()
            running.client.wait(PATIENCE_SECONDS)
            deadline = time.monotonic() + SETTLED_SECONDS
            while not running.orders() <= set(running.done()) and time.monotonic() < deadline:
                time.sleep(0.05)
            orders, done = running.orders(), running.done()
            log = (folder / "log").read_text()[-3000:]
            assert orders <= set(done), f"{seed=}: lost {sorted(orders - set(done))[:9]}\n{log}"
            assert set(done) <= orders, f"{seed=}: made up {sorted(set(done) - orders)[:9]}\n{log}"
            assert servers(folder / "jobs"), "the server is there again"
        finally:
            running.end()
    again = sum(times - 1 for times in done.values())
    return f"{len(orders)} orders, all done, {again} of them twice, after {kills} kills ({seed=})"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path, metavar="DIR")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--client", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.client:
        client(asked.client)
        return 0
    try:
        print(run(asked.directory, asked.kills, asked.seed))
    except (AssertionError, TimeoutError) as problem:
        print(problem)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
