#!/usr/bin/env python3
"""Kill workers of gunicorn, and the engine process, under load: 1 if anything is lost or doubled.

    python tools/kill_gunicorn.py DIR --kills 100 --seed 7

A shop runs in four workers, with Django (in a block of fmq's, and by ATOMIC_REQUESTS with an
outbox) and with SQLAlchemy, each with and without --preload. Each request makes an order and its
message. Meanwhile workers, and the process that serves the
directory, are killed with SIGKILL. At the end the orders in the database and the messages must be
the same, and each order that was answered must be among them.
"""

from __future__ import annotations

import argparse
import http.client
import os
import random
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import fmq
from tools.kill_servers import servers

ROOT = Path(__file__).resolve().parent.parent
APPS = ROOT / "tools" / "gunicorn_apps"
NAMES = ("with_django", "with_django_requests", "with_sqlalchemy")
WORKERS, CLIENTS = 4, 8
KILL_SECONDS = 0.15  # between two kills, on average
SETTLE_SECONDS = 60.0


class Shop:
    """One application in gunicorn, with its database and its queue in a directory of its own."""

    def __init__(self, home: Path, app: str, *, preload: bool) -> None:
        home.mkdir(parents=True)
        self.home = home
        self.answered: set[str] = set()
        self._environ = {
            **os.environ,
            "HOME_OF_SHOP": str(home),
            "PYTHONPATH": f"{ROOT}{os.pathsep}{APPS}",
        }
        self._address = str(home / "web")
        prepare = f"import {app}; {app}.prepare()"
        subprocess.run([sys.executable, "-c", prepare], env=self._environ, check=True)
        command = [sys.executable, "-m", "gunicorn", "-w", str(WORKERS)]
        command += ["--graceful-timeout", "5", "-b"]
        command += [f"unix:{self._address}", "--log-level", "critical", f"{app}:application"]
        self._log = (home / "gunicorn.log").open("wb")
        self._master = subprocess.Popen(
            [*command, *(["--preload"] if preload else [])],
            env=self._environ,
            stdout=self._log,
            stderr=self._log,
        )
        self._stops = threading.Event()
        self._threads = [threading.Thread(target=self._order, args=(n,)) for n in range(CLIENTS)]
        for thread in self._threads:
            thread.start()

    def _order(self, client: int) -> None:
        """Order until the end. What gets no answer may have been ordered or not."""
        number = 0
        while not self._stops.is_set():
            name = f"order-{client}-{number}"
            number += 1
            web = socket.socket(socket.AF_UNIX)
            web.settimeout(60.0)
            made = http.client.HTTPConnection("shop")
            made.sock = web
            try:
                web.connect(self._address)
                made.request("GET", f"/{name}")
                if made.getresponse().status == 201:
                    self.answered.add(name)
            except (OSError, http.client.HTTPException):
                self._stops.wait(0.02)  # no worker answers, or ours was killed
            finally:
                made.close()

    def workers(self) -> list[int]:
        children = Path(f"/proc/{self._master.pid}/task/{self._master.pid}/children").read_text()
        return [int(each) for each in children.split()]

    def kill(self, chosen: random.Random) -> None:
        """Kill a worker, or the engine process."""
        victims = self.workers()
        if chosen.random() < 0.3:
            victims = servers(self.home / "queue") or victims
        with suppress(ProcessLookupError):
            if victims:
                os.kill(chosen.choice(victims), signal.SIGKILL)

    def stop(self) -> None:
        self._stops.set()
        for thread in self._threads:
            thread.join()
        self._master.terminate()
        self._master.wait()
        self._log.close()

    def faults(self) -> list[str]:
        """Return what is lost or doubled, after all that is undecided was settled."""
        with sqlite3.connect(self.home / "shop.db") as database:
            rows = sorted(name for (name,) in database.execute("SELECT name FROM orders"))
        found = []
        resolve = {"shop": f"sqlite:///{self.home}/shop.db"}
        with fmq.connect(self.home / "queue", resolve=resolve) as engine:
            engine.settle(timeout=SETTLE_SECONDS)
            if engine.undecided():
                found.append(f"still undecided: {engine.undecided()}")
            sent = sorted(each.body.decode() for each in engine.read("orders", limit=1_000_000))
        if len(sent) != len(set(sent)):
            found.append(f"{len(sent) - len(set(sent))} messages are doubled")
        for what, names in (
            ("orders without a message", set(rows) - set(sent)),
            ("messages without an order", set(sent) - set(rows)),
            ("answered and gone", self.answered - set(rows)),
        ):
            if names:
                found.append(f"{len(names)} {what}: {sorted(names)[:5]}")
        if not self.answered:
            found.append(f"nothing was ordered: see {self._log.name}")
        return found


def run(home: Path, app: str, kills: int, seed: int, *, preload: bool) -> list[str]:
    """Return what went wrong under so many kills."""
    chosen = random.Random(f"{seed} {app} {preload}")
    shop = Shop(home, app, preload=preload)
    try:
        deadline = time.monotonic() + 60
        while not shop.answered and time.monotonic() < deadline:
            time.sleep(0.05)
        for _ in range(kills):
            time.sleep(chosen.uniform(0.2, 1.8) * KILL_SECONDS)
            shop.kill(chosen)
        time.sleep(0.5)
    finally:
        shop.stop()
    faults = shop.faults()
    how = "with" if preload else "without"
    print(f"{app}, {how} --preload: {kills} kills, {len(shop.answered)} orders answered: ", end="")
    print("; ".join(faults) or "nothing lost or doubled", flush=True)
    return faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path, metavar="DIR")
    parser.add_argument("--kills", type=int, default=100, metavar="N", help="of each of the six")
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    print(f"seed {chosen.seed}")
    wrong = 0
    for app in NAMES:
        for preload in (False, True):
            home = chosen.directory / f"{app}-{'preload' if preload else 'plain'}"
            wrong += len(run(home, app, chosen.kills, chosen.seed, preload=preload))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
