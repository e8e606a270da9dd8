"""Kill the server with kill -9 under transactions, and count what is lost, twice or undecided.

    python contrib/fmq-rocketmq/tools/kill_server.py [--kills 20] [--seed 7]

Several clients prepare transactions and decide them, some for a rollback, and leave one in ten
undecided. A table in memory stands for the clients' database: a checker that is asked answers from
it. Another client receives meanwhile, and acks every second message only after the next kill, with
the handle from before. The server is killed after a random number of commits, and started again in
the same directory. At the end the directory is read:

    late         acks with a handle from before a kill
    lost         acknowledged commits that are not there, and answers "commit" of the checker
    twice        messages that are there more than once, or that were handed out more than once
    wrong        messages that were never committed
    undecided    transactions that nobody was asked about
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import threading
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zlib import crc32

from served import PACKAGE, ROOT, Served

sys.path[:0] = [str(PACKAGE), str(ROOT)]

import grpc

import fmq
from fmq_rocketmq.protocol import Code
from fmq_rocketmq.sending import TX_PREFIX
from fmq_rocketmq.testing import Caller

TOPIC, GROUP = "orders", "kept"
SETTLE_SECONDS = 60.0
INVISIBLE_SECONDS = 3600.0  # longer than the test: what is handed out must not come again
GONE = (grpc.RpcError, StopIteration)  # what a client gets when the server is killed
COMMITS = 20, 60  # between two kills, at least and at most


@dataclass
class Book:
    """What the clients know. The lock is held for each look and change."""

    changed: threading.Condition = field(default_factory=threading.Condition)
    wanted: dict[str, bool] = field(default_factory=dict)
    """The clients' database: whether each transaction has committed there."""
    told: dict[str, bool] = field(default_factory=dict)
    """The decisions that the server has acknowledged."""
    in_doubt: list[str] = field(default_factory=list)
    """Transactions whose decision has got no answer."""
    asked: int = 0
    handed: Counter[str] = field(default_factory=Counter)
    acked: set[str] = field(default_factory=set)
    kept: dict[str, str] = field(default_factory=dict)
    """The handles that are acked after the next kill, by body."""
    late: int = 0
    refused: list[str] = field(default_factory=list)

    def note_decision(self, name: str, commits: bool) -> None:
        """Note that the server has acknowledged a decision."""
        with self.changed:
            self.told[name] = commits
            self.changed.notify_all()

    def wait_for_work(self, count: int) -> bool:
        """Wait until `count` more decisions are acknowledged, and a handle is kept. Return False if
        that takes too long.
        """
        with self.changed:
            until = len(self.told) + count
            return self.changed.wait_for(
                lambda: len(self.told) >= until and not all(map(is_acked_at_once, [*self.kept])),
                SETTLE_SECONDS,
            )

    def note_late(self) -> None:
        """Note that the server has taken a handle from before the kill."""
        with self.changed:
            self.late += 1
            self.changed.notify_all()


def is_acked_at_once(body: str) -> bool:
    return bool(crc32(body.encode()) % 2)


class Clients:
    """The threads that act as clients. Each connects anew after a kill."""

    def __init__(self, server: Served, workers: int, seed: int) -> None:
        self.book = Book()
        self.up = threading.Event()
        self.stop = threading.Event()
        self._ends = threading.Event()
        self._server = server
        self.workers = [
            threading.Thread(target=self._work, args=(number, random.Random(f"{seed} {number}")))
            for number in range(workers)
        ]
        self.others = [
            threading.Thread(target=self._check, daemon=True),
            threading.Thread(target=self._receive, daemon=True),
        ]

    def decide_again(self) -> None:
        """Repeat the decisions that got no answer. The same decision again succeeds."""
        with Caller(self._server.address, "again") as caller:
            for name in self.book.in_doubt:
                self._end(caller, TX_PREFIX + name, name, self.book.wanted[name])

    def end(self) -> None:
        """End all threads. The server is gone by now."""
        self._ends.set()
        self.up.set()
        for thread in self.others:
            thread.join(10)

    def _work(self, number: int, draw: random.Random) -> None:
        count, is_pending = 0, False
        # One whose half message may be stored is sent again, before the thread ends.
        while is_pending or not self.stop.is_set():
            self.up.wait()
            with suppress(grpc.RpcError), Caller(self._server.address, f"w{number}") as caller:
                while is_pending or not self.stop.is_set():
                    is_pending = True
                    self._transaction(caller, f"{number}-{count}", draw)
                    count, is_pending = count + 1, False

    def _transaction(self, caller: Caller, name: str, draw: random.Random) -> None:
        """Make one transaction. Raises RpcError while its half message is not known to be sent."""
        entry = caller.half(TOPIC, name.encode(), message_id=name)
        commits = draw.random() < 0.8
        with self.book.changed:
            self.book.wanted[name] = commits
        if draw.random() < 0.9:
            try:
                self._end(caller, entry.transaction_id, name, commits)
            except grpc.RpcError:
                # The server may have decided it before it was killed. Then nobody is asked.
                self.book.in_doubt.append(name)

    def _end(self, caller: Caller, tx_id: str, name: str, commits: bool) -> None:
        status = caller.end(tx_id, commits=commits)
        if status.code == Code.OK:
            self.book.note_decision(name, commits)
        else:
            self.book.refused.append(f"{name}: {status.message}")

    def _check(self) -> None:
        while not self._ends.is_set():
            self.up.wait()
            with suppress(*GONE), Caller(self._server.address, "checker") as caller:
                stream = caller.telemetry()
                stream.publishes(TOPIC)
                while True:
                    asked = stream.next().recover_orphaned_transaction_command
                    name = asked.transaction_id.removeprefix(TX_PREFIX)
                    with self.book.changed:
                        self.book.asked += 1
                        commits = self.book.wanted.get(name)
                    if commits is None:
                        caller.end(asked.transaction_id, commits=None)
                    else:
                        self._end(caller, asked.transaction_id, name, commits)

    def _receive(self) -> None:
        kept = self.book.kept
        while not self._ends.is_set():
            self.up.wait()
            with suppress(grpc.RpcError), Caller(self._server.address, "r") as caller:
                while kept:
                    body = next(iter(kept))
                    self._ack(caller, body, kept[body])
                    del kept[body]
                    self.book.note_late()
                while True:
                    found = caller.receive(TOPIC, GROUP, wait=1.0, invisible=INVISIBLE_SECONDS)
                    took = {each.body.decode(): each.system_properties for each in found}
                    self.book.handed.update(took.keys())
                    kept.update({body: said.receipt_handle for body, said in took.items()})
                    for body in took:
                        if is_acked_at_once(body):
                            self._ack(caller, body, kept[body])
                            del kept[body]

    def _ack(self, caller: Caller, body: str, handle: str) -> None:
        status = caller.ack(TOPIC, handle, group=GROUP).status
        if status.code == Code.OK:
            self.book.acked.add(body)
        else:
            self.book.refused.append(f"{body}: {status.message}")


def run(path: Path, *, kills: int, seed: int, workers: int = 4) -> dict[str, Any]:
    """Run it in a new directory. Return the counts."""
    draw = random.Random(seed)
    server = Served(path)
    clients = Clients(server, workers, seed)
    book, late = clients.book, 0
    server.start()
    clients.up.set()
    for thread in (*clients.workers, *clients.others):
        thread.start()
    try:
        for _ in range(kills):
            if not book.wait_for_work(draw.randint(*COMMITS)):
                break
            clients.up.clear()
            server.kill()
            late = book.late + 1
            server.start()
            clients.up.set()
        clients.stop.set()
        for thread in clients.workers:
            thread.join(SETTLE_SECONDS)
        clients.decide_again()
        with book.changed:
            book.changed.wait_for(
                lambda: len(book.told) >= len(book.wanted) and book.late >= late, SETTLE_SECONDS
            )
    finally:
        clients.stop.set()
        server.kill()
        clients.end()
    with fmq.open(path, timeout=30.0) as engine:
        return _counted(engine, book, kills)


def _counted(engine: fmq.Engine, book: Book, kills: int) -> dict[str, Any]:
    there: Counter[str] = Counter()
    offset = 0
    while batch := engine.read_batch(TOPIC, offset=offset):
        there.update(body.decode() for body in batch.bodies)
        offset = batch.next
    unread = {each.body.decode() for each in engine.unread(GROUP, TOPIC, limit=100_000)}
    committed = {name for name, commits in book.told.items() if commits}
    return {
        "kills": kills,
        "transactions": len(book.wanted),
        "committed": len(committed),
        "asked": book.asked,
        "acked": len(book.acked),
        "late": book.late,
        "lost": len(committed - there.keys()) + len(unread & book.acked),
        "twice": sum(count > 1 for count in (there + Counter()).values())
        + sum(count > 1 for count in book.handed.values()),
        "wrong": len([name for name in there if not book.wanted.get(name)]),
        "undecided": len(engine.undecided()),
        "refused": len(book.refused),
    }


BAD = ("lost", "twice", "wrong", "undecided", "refused")


def main() -> int:
    """Print the counts. Return 1 if any of BAD is not 0."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as path:
        found = run(Path(path) / "store", kills=chosen.kills, seed=chosen.seed)
    print(f"seed {chosen.seed}: " + ", ".join(f"{value:,} {name}" for name, value in found.items()))
    return 1 if any(found[name] for name in BAD) else 0


if __name__ == "__main__":
    raise SystemExit(main())
