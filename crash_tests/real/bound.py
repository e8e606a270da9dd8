"""Producers with a database of their own, killed: never a row without its messages, or the reverse.

A process places orders, a row in sqlite3 and a message in each of two topics, in a transaction that
is bound; it says which are placed, and is killed. The next one decides what was left, and row
and messages must agree. The control does the same without binding, as people do who hope.
"""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from random import Random

import fmq
import fmq.bind
from crash_tests.oracle import Violation
from crash_tests.real.filesystem import scratch_below
from crash_tests.real.tally import Budget, Tally

SHARE = 30  # kills of a run that is given no budget
KILLS_OF_ONE = 15
CONTROL_KILLS_MAX = 100
PRODUCER = "checkout"
TOPICS = ("orders", "emails")
LIFE_SECONDS_MAX = 0.08

Place = Callable[[fmq.Engine, sqlite3.Connection, str], None]


def bound(engine: fmq.Engine, db: sqlite3.Connection, order: str) -> None:
    with engine.transaction(producer=PRODUCER, bind=db) as tx:
        db.execute("INSERT INTO orders VALUES (?)", (order,))
        for topic in TOPICS:
            tx.send(topic, order.encode())


def hoping(engine: fmq.Engine, db: sqlite3.Connection, order: str) -> None:
    """The classic mistake: two commits, and a process that may die between them."""
    db.execute("INSERT INTO orders VALUES (?)", (order,))
    db.commit()
    with engine.transaction() as tx:
        for topic in TOPICS:
            tx.send(topic, order.encode())


class Shop:
    """One directory and its database, over many lives."""

    def __init__(self, folder: Path, seed: int, place: Place) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        self._folder = folder
        self._random = Random(seed)
        self._place = place
        self._lives = 0
        self.placed: set[str] = set()
        db = self._database()
        db.execute("CREATE TABLE orders (name TEXT PRIMARY KEY)")
        fmq.bind.create_table(db)
        db.close()

    def _database(self) -> sqlite3.Connection:
        db = sqlite3.connect(self._folder / "shop.db")
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        return db

    def _opened(self) -> fmq.Engine:
        resolve = {PRODUCER: f"sqlite:///{self._folder.absolute()}/shop.db"}
        return fmq.open(self._folder / "shop", resolve=resolve)

    def live(self) -> None:
        """One process from its start to its kill; then what it left is looked at."""
        self._lives += 1
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            self._work(writer)
        os.close(writer)
        with os.fdopen(reader) as heard:
            first = heard.readline()  # it is at work
            time.sleep(self._random.uniform(0.0, LIFE_SECONDS_MAX))
            os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
            told = [first, *heard]
        if not os.WIFSIGNALED(status):
            raise Violation("I0", "a producer ended by itself; it says why on stderr")
        # The last line may have been cut by the kill.
        self.placed |= {line.strip() for line in told if line.endswith("\n")}
        self.look()

    def _work(self, writer: int) -> None:
        try:
            db, engine = self._database(), self._opened()
            number = 0
            while True:
                order = f"{self._lives}-{number}"
                self._place(engine, db, order)
                os.write(writer, f"{order}\n".encode())
                number += 1
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)

    def look(self) -> None:
        """Violation unless the database and every topic have the same orders, placed ones too."""
        with self._opened() as engine:
            left = engine.undecided()
            if left:
                raise Violation("undecided", f"{len(left)} are undecided behind `resolve`")
            there = {topic: self._messages(engine, topic) for topic in TOPICS}
        db = self._database()
        rows = {name for (name,) in db.execute("SELECT name FROM orders")}
        db.close()
        if not self.placed <= rows:
            raise Violation("I1", f"placed and gone: {sorted(self.placed - rows)[:5]}")
        for topic, orders in there.items():
            if len(orders) != len(set(orders)):
                raise Violation("I5", f"{topic} has an order twice")
            if set(orders) != rows:
                raise Violation("agree", f"in one only: {sorted(set(orders) ^ rows)[:5]}")
        problems = fmq.check(self._folder / "shop").problems
        if problems:
            raise Violation("I10", str(problems[0]))

    @staticmethod
    def _messages(engine: fmq.Engine, topic: str) -> list[str]:
        return [bytes(each.body).decode() for each in engine.read(topic, limit=1_000_000)]


class Bound:
    """The tier."""

    name = "kills of a producer with a database"

    def run(self, budget: Budget) -> Tally:
        tally = Tally(self.name)
        with scratch_below(budget.directory, "bound") as scratch:
            self._control(scratch / "control", budget.seed, tally)
            while budget.allows(tally.rounds, SHARE):
                seed = budget.seed * 1_000_000 + tally.stores
                self._shop(Shop(scratch / "shop", seed, bound), budget, tally)
        tally.stop()
        return tally

    def _shop(self, shop: Shop, budget: Budget, tally: Tally) -> None:
        tally.stores += 1
        try:
            for _ in range(KILLS_OF_ONE):
                if budget.allows(tally.rounds, SHARE):
                    shop.live()
                    tally.add_round(budget)
        except Violation as violation:
            tally.failures.append(violation)
        tally.promises += len(shop.placed)

    def _control(self, folder: Path, seed: int, tally: Tally) -> None:
        shop = Shop(folder, seed, hoping)
        try:
            for _ in range(CONTROL_KILLS_MAX):
                shop.live()
        except Violation:
            tally.controls += 1
        else:
            tally.failures.append(Violation("control", "two commits, and they always agreed"))


BOUND = Bound()
