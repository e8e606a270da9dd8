"""Kill RocketMQ's own clients with kill -9 under transactions, and count what is lost, twice or
undecided.

    python contrib/fmq-rocketmq/tools/kill_clients.py [python] [node] [--kills 20] [--seed 7]

An order service in each language makes transactions, one in five for a rollback, and leaves one in
ten to its checker. Its orders lie in a folder, which stands for the database of the shop: whichever
process is asked about an order finds its row. One service after the other is killed after a random
number of orders, or has ended by itself, and a new one takes its place. At the end the directory is
read:

    lost         orders that are paid and whose message is not there
    twice        orders whose message is there more than once
    wrong        messages without a paid order
    undecided    transactions that nobody was asked about
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from clients import PROGRAMS, node_folder
from served import PACKAGE, ROOT, Served

sys.path[:0] = [str(PACKAGE), str(ROOT)]

import fmq

TOPIC = "orders"
ORDERS = 5, 40  # between two kills, at least and at most
SETTLE_SECONDS = 60.0


def python_shop() -> list[str]:
    """Return the command of the service in Python."""
    return [sys.executable, str(PROGRAMS / "shop.py")]


def node_shop() -> list[str]:
    """Bring the Node client by npm, and return the command of the service in Node."""
    program = node_folder() / "shop.js"
    program.write_text((PROGRAMS / "shop.js").read_text())
    return ["node", str(program)]


SHOPS = {"python": python_shop, "node": node_shop}


class Shop:
    """A process of the order service."""

    def __init__(self, command: list[str], address: str, database: Path, name: str, mode: str):
        self._gone = database / f"{name}.gone"
        self._process = subprocess.Popen(
            [*command, address, str(database), name, mode], stdout=subprocess.PIPE, text=True
        )
        self.asked = 0
        if not self._hears("ready"):
            raise RuntimeError("a client has not started; its error is above")

    def makes_orders(self, count: int) -> bool:
        """Return True once it has made `count` more orders; False if it ends before."""
        return all(self._hears("order") for _ in range(count))

    def kill(self) -> None:
        """End it with kill -9, and say in the database that it is gone."""
        assert self._process.stdout is not None
        self._process.kill()
        self._process.wait()
        self.asked += self._process.stdout.read().count("asked\n")
        self._process.stdout.close()
        self._gone.touch()

    def _hears(self, word: str) -> bool:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            said = line.strip()
            if said == word:
                return True
            self.asked += said == "asked"
        return False  # it has ended


def run(path: Path, commands: dict[str, list[str]], *, kills: int, seed: int) -> dict[str, Any]:
    """Run it in a new directory. Return the counts."""
    draw = random.Random(seed)
    database = path / "database"
    database.mkdir()
    server = Served(path / "store")
    server.start()
    shops: dict[str, Shop] = {}
    ended: list[Shop] = []
    by_itself = 0

    def start(language: str, mode: str) -> None:
        name = f"{language}-{len(ended)}"
        shops[language] = Shop(commands[language], server.address, database, name, mode)

    def kill(language: str) -> None:
        shop = shops.pop(language)
        shop.kill()
        ended.append(shop)

    try:
        for language in commands:
            start(language, "sell")
        for _ in range(kills):
            language = draw.choice(list(commands))
            by_itself += not shops[language].makes_orders(draw.randint(*ORDERS))
            kill(language)
            start(language, "sell")
        for language in commands:
            kill(language)
            start(language, "answer")
        _wait_until_decided(path / "store")
    finally:
        for language in list(shops):
            kill(language)
        server.kill()
    counts = _counted(path / "store", database)
    asked = sum(shop.asked for shop in ended)
    return {"kills": kills, "ended by themselves": by_itself, "asked": asked, **counts}


def _wait_until_decided(store: Path) -> None:
    """Return once no transaction is undecided, or after a long time."""
    until = time.monotonic() + SETTLE_SECONDS
    with fmq.open(store, read_only=True) as reader:
        while reader.undecided() and time.monotonic() < until:
            time.sleep(0.1)


def _counted(store: Path, database: Path) -> dict[str, Any]:
    orders = [
        row.split() for file in database.glob("*.orders") for row in file.read_text().splitlines()
    ]
    paid = {name for name, outcome in orders if outcome == "paid"}
    there = Counter[str]()
    with fmq.open(store, timeout=30.0) as engine:
        offset = 0
        while batch := engine.read_batch(TOPIC, offset=offset):
            there.update(body.decode() for body in batch.bodies)
            offset = batch.next
        undecided = len(engine.undecided())
    return {
        "orders": len(orders),
        "paid": len(paid),
        "lost": len(paid - there.keys()),
        "twice": sum(count > 1 for count in there.values()),
        "wrong": len(there.keys() - paid),
        "undecided": undecided,
    }


BAD = ("lost", "twice", "wrong", "undecided")


def main() -> int:
    """Print the counts. Return 1 if any of BAD is not 0."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("languages", nargs="*", choices=[[], *SHOPS], default=[])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    chosen = parser.parse_args()
    commands = {name: SHOPS[name]() for name in chosen.languages or SHOPS}
    with tempfile.TemporaryDirectory() as path:
        found = run(Path(path), commands, kills=chosen.kills, seed=chosen.seed)
    print(f"seed {chosen.seed}: " + ", ".join(f"{value:,} {name}" for name, value in found.items()))
    return 1 if any(found[name] for name in BAD) else 0


if __name__ == "__main__":
    raise SystemExit(main())
