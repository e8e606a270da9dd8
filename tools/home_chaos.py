#!/usr/bin/env python3
"""Kill and pause the owners of a home while clients work: 1 if anything is lost, twice or cut.

    python tools/home_chaos.py --seed 7 --kills 20 --pauses 20
    python tools/home_chaos.py --server nats --server-deaths 10 --database postgresql
    python tools/home_chaos.py --home s3://bucket/empty --database postgresql://host/shop

Three machines stand by for each other (`fmq standby`), and are started again if they end. Again and
again the owner is killed with SIGKILL, and comes back, sometimes with an empty directory; or it is
stopped with SIGSTOP until another one has taken over, and goes on; or the server of the home is
killed, and comes back after some seconds. Clients find the owner by the home's address: some send,
some commit transactions over two topics, at once or prepared first, some place orders in blocks
that are bound to a database, and a work queue and an ordered group handle what was sent. In the end
a machine that knows nothing opens the home and compares.

The home is a new directory, or with --server in a server that is started for it. The database is
SQLite, or with `--database postgresql` a PostgreSQL that is started for it.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import secrets
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from threading import Event, Lock, Thread
from typing import Any, TypeVar

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import fmq
import fmq.bind
from fmq.errors import FmqError
from fmq.home.home_look import find_owner
from tools.home_servers import KINDS, HomeServer, PostgresHome, missing
from tools.ports import free_port

ROOT = Path(__file__).resolve().parent.parent
MACHINES = 3
PATIENCE_SECONDS = 90.0
RETRY_SECONDS = 120.0
PRODUCER = "shop"
FENCED = "has taken over"
READ_AT_ONCE = 1000
DEAD_SECONDS = 1.0, 4.0
PACE_SECONDS = 0.02
T = TypeVar("T")


class Machine:
    """A directory, an address, and the process that stands by there."""

    def __init__(self, chaos: Chaos, number: int) -> None:
        self.chaos = chaos
        self.path = chaos.folder / f"machine{number}"
        self.log = chaos.folder / f"machine{number}.log"
        self.address = f"127.0.0.1:{free_port()}"
        self.start()

    def start(self) -> None:
        chaos = self.chaos
        words = ["standby", chaos.home, self.path, "--listen", self.address, "--token-file"]
        words += [chaos.token, "--after", chaos.after, "--resolve", f"{PRODUCER}={chaos.database}"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "fmq", *map(str, words)], cwd=ROOT, stderr=log
            )

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def fenced(self) -> int:
        """How often this machine has said that another one has taken over."""
        return len(re.findall(rf"WARNING fmq\.home: \S+ process .*{FENCED}", self.log.read_text()))


class Chaos:
    """One home, its machines, and the clients that use it."""

    def __init__(
        self, home: str | None, server: str | None, database: str | None, seed: int, after: float
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="fmq-home-chaos-"))
        self.folder.chmod(0o755)  # PostgreSQL may run as another user
        self.home = home or f"file://{self.folder}/home"
        self.server: HomeServer | None = None
        self.judging: PostgresHome | None = None
        if server is not None:
            self.server = KINDS[server](self.made("server"))
            self.home = self.server.home("chaos")
        self.database = database or f"sqlite:///{self.folder}/shop.db"
        if database == "postgresql":
            self.judging = PostgresHome(self.made("database"))
            self.database = self.judging.home("").replace("/?", "?")
        self.random, self.after = Random(seed), after
        self.token = self.folder / "token"
        self.token.touch(0o600)
        self.token.write_text(secrets.token_hex(32))
        self.stop, self.drain, self.lock = Event(), Event(), Lock()
        self.acked: dict[str, list[str]] = {"orders": [], "audit": []}
        self.handled: dict[str, list[str]] = {"work": [], "ordered": []}
        self.rows: list[str] = []
        self.last_ack = time.monotonic()
        self.errors: list[str] = []
        self.gaps: list[float] = []
        self.paused = self.fenced = self.killed = self.deaths = self.restarts = 0
        with self.connection() as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS orders (name VARCHAR(99) PRIMARY KEY)")
            fmq.bind.create_table(connection)
        self.machines = [Machine(self, each) for each in range(MACHINES)]

    def made(self, name: str) -> Path:
        path = self.folder / name
        path.mkdir()
        return path

    def end(self) -> None:
        for each in self.machines:
            each.kill()
        for server in (self.server, self.judging):
            if server is not None:
                server.end()

    def connection(self) -> Any:
        if not self.database.startswith("sqlite:"):
            import psycopg

            return psycopg.connect(self.database)
        path = self.database.removeprefix("sqlite:///")
        # The thread that places orders gets its connection from another one.
        made = sqlite3.connect(path, timeout=60, check_same_thread=False)
        made.execute("PRAGMA synchronous = EXTRA")
        return made

    def client(self) -> fmq.RemoteEngine:
        return fmq.connect(self.home, token_file=str(self.token), retry_for=RETRY_SECONDS)

    # --- what clients do --------------------------------------------------------------------------

    def ack(self, **bodies: str) -> None:
        with self.lock:
            for topic, body in bodies.items():
                self.acked[topic].append(body)
            self.last_ack = time.monotonic()

    def send(self, client: fmq.RemoteEngine, name: str, number: int) -> None:
        body = f"{name}:{number}"
        client.send("orders", body.encode(), key=name)
        self.ack(orders=body)

    def commit(self, client: fmq.RemoteEngine, name: str, number: int) -> None:
        body = f"{name}:{number}"
        tx = client.transaction(tx_id=f"{name}-{number}")
        for topic in ("orders", "audit"):
            tx.send(topic, body.encode(), key=name)
        if number % 2:
            tx.prepare()
        tx.commit()
        self.ack(orders=body, audit=body)

    def place(self, client: fmq.RemoteEngine, name: str, number: int) -> None:
        body = f"{name}:{number}"
        with client.transaction(producer=PRODUCER, bind=self.connections[name]) as tx:
            self.connections[name].execute(f"INSERT INTO orders VALUES ('{body}')")
            tx.send("orders", body.encode(), key=name)
        self.ack(orders=body)

    def work(self, name: str, step: Callable[..., None]) -> None:
        number = 0
        try:
            with self.client() as client:
                while not self.stop.is_set():
                    step(client, name, number)
                    number += 1
                    self.stop.wait(PACE_SECONDS)  # so that the ordered group keeps up
        except Exception as error:
            self.errors.append(f"{name}:{number}: {type(error).__name__}: {error}")

    def handle(self, group: str, *, ordered: bool) -> None:
        quiet = 0
        try:
            with (
                self.client() as client,
                client.consumer("orders", group=group, ordered=ordered) as consumer,
            ):
                # What was sent last is handled, too: until nothing has come for a while.
                while not self.drain.is_set() or quiet < 2:
                    found = consumer.poll(limit=50, timeout=0.5)
                    quiet = 0 if found else quiet + 1
                    for each in found:
                        with self.lock:
                            self.handled[group].append(bytes(each.body).decode())
                        with suppress(fmq.LeaseLost, fmq.MemberReplaced):
                            each.ack()  # else it is handed out again
        except Exception as error:
            self.errors.append(f"{group}: {type(error).__name__}: {error}")

    # --- what happens to machines -----------------------------------------------------------------

    def owner(self) -> Machine | None:
        with suppress(OSError, FmqError):
            where = find_owner(self.home)
            return next((each for each in self.machines if f"tcp://{each.address}" == where), None)
        return None

    def wait(self, ready: Callable[[], T], what: str) -> T:
        """Return what `ready` returns, once that is true."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not (found := ready()):
            if time.monotonic() > deadline:
                raise TimeoutError(what)
            for each in self.machines:
                # A supervisor would do that. One that this program has killed is dead on purpose.
                if each.process.poll() not in (None, -signal.SIGKILL):
                    self.restarts += 1
                    each.start()
            time.sleep(0.05)
        return found

    def death(self) -> None:
        """Let the server die and come back, and wait until clients are answered again."""
        assert self.server is not None, "it has one"
        before = time.monotonic()
        self.server.stop()
        time.sleep(self.random.uniform(*DEAD_SECONDS))
        self.server.start()
        back = time.monotonic()
        self.wait(lambda: self.last_ack > back, "no client is answered")
        self.gaps.append(self.last_ack - before)
        self.deaths += 1

    def event(self, kind: str) -> None:
        """Let one owner die or pause, and wait until clients are answered by the next one."""
        if kind == "death":
            self.death()
            return
        owner = self.wait(self.owner, "nobody serves")
        assert owner is not None, "somebody serves"
        before, fenced = time.monotonic(), owner.fenced()
        owner.process.send_signal(signal.SIGKILL if kind == "kill" else signal.SIGSTOP)
        self.wait(lambda: self.owner() not in (None, owner), "nobody takes over")
        ordered = time.monotonic()
        self.wait(lambda: self.last_ack > ordered, "no client is answered")
        self.gaps.append(self.last_ack - before)
        if kind == "kill":
            self.killed += 1
            owner.kill()
            if self.random.random() < 0.5:
                shutil.rmtree(owner.path)  # the machine is lost, and another one comes in its place
            owner.start()
        else:
            self.paused += 1
            owner.process.send_signal(signal.SIGCONT)
            with suppress(TimeoutError):
                self.wait(lambda: owner.fenced() > fenced, "it was not fenced")
            self.fenced += owner.fenced() > fenced

    def run(self, kills: int, pauses: int, deaths: int, seconds: float) -> None:
        began = time.monotonic()
        self.wait(lambda: self.owner() is not None, "nobody serves")
        with self.client() as client:
            client.create_topic("orders", queues=2)
            client.create_topic("audit", queues=2)
        works: list[Any] = [(f"s{each}", self.send) for each in range(3)]
        works += [(f"t{each}", self.commit) for each in range(2)]
        works.append(("b0", self.place))
        self.connections = {name: self.connection() for name, step in works if step == self.place}
        senders = [Thread(target=self.work, args=each) for each in works]
        handlers = [
            Thread(target=self.handle, args=(group,), kwargs={"ordered": group == "ordered"})
            for group in ("work", "work", "ordered", "ordered")
        ]
        for thread in senders + handlers:
            thread.start()
        try:
            events = ["kill"] * kills + ["pause"] * pauses + ["death"] * deaths
            self.random.shuffle(events)
            for kind in events:
                if time.monotonic() - began > seconds:
                    break
                time.sleep(self.random.uniform(0.5, 2.0))
                self.event(kind)
                print(f"{kind}: {self.gaps[-1]:.1f} s", file=sys.stderr, flush=True)
        finally:
            self.stop.set()
            for thread in senders:
                thread.join(2 * RETRY_SECONDS)
            with self.client() as client:
                client.settle()  # the database decides what a dead owner has left
            self.drain.set()
            for thread in handlers:
                thread.join(2 * RETRY_SECONDS)

    # --- the verdict ------------------------------------------------------------------------------

    def judge(self) -> dict[str, Any]:
        """Compare what the clients were told with what a machine finds that knows nothing."""
        for each in self.machines:
            each.kill()
        resolve = {PRODUCER: self.database}
        with fmq.open(self.folder / "verdict", home=self.home, resolve=resolve) as engine:
            undecided = [each.tx_id for each in engine.undecided()]
            orders, audit = bodies(engine, "orders"), bodies(engine, "audit")
            home = engine.stats().home
            for group, handled in self.handled.items():  # what their members had still in hand
                with engine.consumer("orders", group=group, ordered=group == "ordered") as left:
                    while found := left.poll(limit=1000, timeout=0):
                        for delivery in found:
                            handled.append(bytes(delivery.body).decode())
                            delivery.ack()
        with self.connection() as connection:
            rows = {row[0] for row in connection.execute("SELECT name FROM orders").fetchall()}
        of_two = {each for each in orders if each.startswith("t")}
        placed = {each for each in orders if each.startswith("b")}
        lost = {*self.acked["orders"]} - {*orders} | {*self.acked["audit"]} - {*audit}
        unhandled = [{*orders} - {*each} for each in self.handled.values()]
        return {
            "home": re.sub(r"//[^/]*@", "//", self.home),
            "killed": self.killed,
            "paused": self.paused,
            "fenced": self.fenced,
            "deaths of the server": self.deaths,
            "started again": self.restarts,
            "terms": None if home is None else home.term,
            "acked": len(self.acked["orders"]) + len(self.acked["audit"]),
            "lost": len(lost),
            "doubled": sum(n - 1 for each in (orders, audit) for n in Counter(each).values()),
            "disorder": disorder(orders) + disorder(audit),
            "half": len(of_two ^ {*audit}) + len(placed ^ rows),
            "unhandled": sum(map(len, unhandled)),
            "handled out of order": disorder([*dict.fromkeys(self.handled["ordered"])]),
            "handled again": sum(len(each) - len({*each}) for each in self.handled.values()),
            "undecided": len(undecided),
            "errors": self.errors,
            "median gap": round(sorted(self.gaps)[len(self.gaps) // 2], 1),
            "longest gap": round(max(self.gaps), 1),
        }


def bodies(engine: fmq.Engine, topic: str) -> list[str]:
    found: list[str] = []
    for queue in engine.queues(topic):
        offset = queue.first
        while got := engine.read(topic, queue=queue.queue, offset=offset, limit=READ_AT_ONCE):
            found += [bytes(each.body).decode() for each in got]
            offset += len(got)
    return found


def disorder(found: list[str]) -> int:
    """How many messages come after a later one of their sender. Each sender has one queue.

    What a dead owner has left undecided is there once the database has decided it. So the order of
    bound blocks is not looked at.
    """
    found = [each for each in found if not each.startswith("b")]
    last: dict[str, int] = {}
    wrong = 0
    for each in found:
        name, _, number = each.partition(":")
        wrong += int(number) <= last.get(name, -1)
        last[name] = max(int(number), last.get(name, -1))
    return wrong


ZERO = ("lost", "doubled", "disorder", "half", "unhandled", "handled out of order", "undecided")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--home", help="an empty one")
    where.add_argument("--server", choices=KINDS, help="start one, and make the home there")
    parser.add_argument("--database", help="sqlite:///shop.db, postgresql://host/shop, postgresql")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6))
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--pauses", type=int, default=20)
    parser.add_argument("--server-deaths", type=int, default=0, help="with --server")
    parser.add_argument("--minutes", type=float, default=10, help="no more events after that")
    parser.add_argument("--after", type=float, default=2.0, help="seconds of silence")
    asked = parser.parse_args(arguments)
    if asked.server_deaths and asked.server is None:
        parser.error("--server-deaths needs --server")
    if why := missing(asked.server or ""):
        parser.error(why)
    print(f"seed {asked.seed}", file=sys.stderr, flush=True)
    os.environ.setdefault("PYTHONPATH", str(ROOT))
    chaos = Chaos(asked.home, asked.server, asked.database, asked.seed, asked.after)
    try:
        chaos.run(asked.kills, asked.pauses, asked.server_deaths, asked.minutes * 60)
        verdict = chaos.judge()
    except BaseException:
        print(f"left for you to look at: {chaos.folder}", file=sys.stderr)
        raise
    finally:
        chaos.end()
    print(json.dumps({"seed": asked.seed, **verdict}))
    wrong = [name for name in ZERO if verdict[name]]
    if wrong or verdict["errors"] or verdict["fenced"] < verdict["paused"]:
        print(f"left for you to look at: {chaos.folder}", file=sys.stderr)
        return 1
    shutil.rmtree(chaos.folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
