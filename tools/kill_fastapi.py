#!/usr/bin/env python3
"""Kill a shop with FastAPI under load: 1 if an order or a message is lost, or one is doubled.

    python tools/kill_fastapi.py DIR --kills 20 --seed 7

examples/fastapi/shop.py runs in uvicorn, with PostgreSQL: a server of its own, or that of
--database. Clients order all the time. The shop is killed with SIGKILL and started again. At the
end orders and messages must be the same, each order that was answered must be among them, and what
the consumer has acked must be shipped.
"""

from __future__ import annotations

import argparse
import http.client
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import psycopg

import fmq
import fmq.bind
from benchmarks.peers.programs import Folder

ROOT = Path(__file__).resolve().parent.parent
CLIENTS = 8
KILL_SECONDS = 0.4  # between two kills, on average
START_SECONDS = 60.0


class Shop:
    """The shop, which is started again after each kill, and its clients."""

    def __init__(self, home: Path, database: str) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self._home = home
        self._database = database
        self._socket = home / "web"
        self._environ = {
            **os.environ,
            "DATABASE": database,
            "QUEUE": str(home / "queue"),
            "PYTHONPATH": str(ROOT),
        }
        self._log = (home / "uvicorn.log").open("ab")
        self.answered: set[str] = set()
        self._stops = threading.Event()
        self._server = self._start()
        self._threads = [threading.Thread(target=self._order, args=(n,)) for n in range(CLIENTS)]
        for thread in self._threads:
            thread.start()

    def _start(self) -> subprocess.Popen[bytes]:
        self._socket.unlink(missing_ok=True)
        command = [sys.executable, "-m", "uvicorn", "--app-dir", str(ROOT / "examples" / "fastapi")]
        command += ["--uds", str(self._socket), "--log-level", "warning", "shop:app"]
        return subprocess.Popen(command, env=self._environ, stdout=self._log, stderr=self._log)

    def _order(self, client: int) -> None:
        """Order until the end. What gets no answer may have been ordered or not."""
        number = 0
        while not self._stops.is_set():
            name = f"order-{client}-{number}"
            number += 1
            web = socket.socket(socket.AF_UNIX)
            web.settimeout(START_SECONDS)
            made = http.client.HTTPConnection("shop")
            made.sock = web
            try:
                web.connect(str(self._socket))
                made.request("POST", f"/orders/{name}")
                if made.getresponse().status == 201:
                    self.answered.add(name)
            except (OSError, http.client.HTTPException):
                self._stops.wait(0.02)  # it was killed, or is starting
            finally:
                made.close()

    def wait(self) -> None:
        """Wait until it answers again."""
        before, deadline = len(self.answered), time.monotonic() + START_SECONDS
        while len(self.answered) == before and time.monotonic() < deadline:
            time.sleep(0.01)

    def kill(self) -> None:
        """Kill it, and start it again."""
        self._server.kill()
        self._server.wait()
        self._server = self._start()

    def stop(self) -> None:
        """End the clients, and the shop as uvicorn ends."""
        self._stops.set()
        for thread in self._threads:
            thread.join()
        self._server.send_signal(signal.SIGTERM)
        self._server.wait()
        self._log.close()

    def faults(self) -> list[str]:
        """Return what is lost or doubled, after all that is undecided was settled."""
        with fmq.open(self._home / "queue", resolve={"shop": self._database}) as engine:
            engine.settle()
            undecided = engine.undecided()
            messages = engine.read("orders", limit=1_000_000)
            acked = engine.groups("shipping")[0].acked_below if messages else 0
        with psycopg.connect(self._database) as connection:
            orders = {name for (name,) in connection.execute("SELECT name FROM orders")}
            shipped = {name for (name,) in connection.execute("SELECT name FROM shipments")}
        sent = [each.body.decode() for each in messages]
        found = [f"still undecided: {undecided}"] if undecided else []
        if len(sent) != len(set(sent)):
            found.append(f"{len(sent) - len(set(sent))} messages are doubled")
        for what, names in (
            ("orders without a message", orders - set(sent)),
            ("messages without an order", set(sent) - orders),
            ("answered and gone", self.answered - orders),
            ("acked and not shipped", set(sent[:acked]) - shipped),
            ("shipped without an order", shipped - orders),
        ):
            if names:
                found.append(f"{len(names)} {what}: {sorted(names)[:5]}")
        if not self.answered:
            found.append(f"nothing was ordered: see {self._log.name}")
        return found


def run(home: Path, kills: int, seed: int, database: str) -> list[str]:
    """Return what went wrong under so many kills."""
    chosen = random.Random(seed)
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS orders, shipments")
    shop = Shop(home, database)
    try:
        shop.wait()
        for _ in range(kills):
            time.sleep(chosen.uniform(0.0, 2.0) * KILL_SECONDS)
            shop.kill()
            shop.wait()
    finally:
        shop.stop()
    faults = shop.faults()
    print(f"{kills} kills, {len(shop.answered)} orders answered: ", end="")
    print("; ".join(faults) or "nothing lost or doubled", flush=True)
    return faults


def main() -> int:
    """Read the arguments, and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path, metavar="DIR")
    parser.add_argument("--kills", type=int, default=20, metavar="N")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--database", help="the address of a PostgreSQL whose tables may be dropped"
    )
    chosen = parser.parse_args()
    print(f"seed {chosen.seed}")
    with ExitStack() as stack:
        database = chosen.database
        if database is None:
            from benchmarks.peers.postgres import Postgres

            folder = Folder("fmq-postgres-")
            stack.callback(folder.remove)
            folder.path.chmod(0o755)
            server = Postgres(folder.path)
            stack.callback(server.close)
            with server.connect() as connection:
                database = f"postgresql://postgres@/postgres?host={connection.info.host}"
        return 1 if run(chosen.directory, chosen.kills, chosen.seed, database) else 0


if __name__ == "__main__":
    sys.exit(main())
