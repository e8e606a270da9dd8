"""A transaction that is bound to a database, crashed wherever it makes a difference."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager

import fmq
from fmq.bind import checker_of, create_table
from fmq.testing import World, crash


@contextmanager
def database(world: World) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(world.path / "shop.db")) as rows:
        rows.execute("PRAGMA synchronous=EXTRA")
        rows.execute("CREATE TABLE IF NOT EXISTS orders (name PRIMARY KEY)")
        create_table(rows)
        yield rows


def workload(engine: fmq.Engine, world: World) -> None:
    """Two orders that are placed, and one that is not."""
    with database(world) as rows:
        for order in ("order 1", "order 2", "order 3"):
            try:
                with engine.transaction(bind=rows, tx_id=order, producer="shop") as tx:
                    rows.execute("INSERT INTO orders VALUES (?)", (order,))
                    tx.send("orders", order.encode())
                    if order == "order 2":
                        raise fmq.RollBack
                world.tell(order)
            except fmq.RollBack:
                pass


def recover(engine: fmq.Engine, world: World) -> None:
    """Do what `fmq.open(..., resolve={"shop": ...})` does."""
    engine.checker("shop")(checker_of(f"sqlite:///{world.path}/shop.db"))
    engine.settle()


def check(engine: fmq.Engine, world: World) -> None:
    with database(world) as rows:
        placed = [name for (name,) in rows.execute("SELECT name FROM orders")]
    messages = [bytes(message.body).decode() for message in engine.read("orders")]
    assert placed == messages, f"{placed=} {messages=}"
    assert list(world.told) == placed[: len(world.told)]
    assert engine.undecided() == []


def test_a_bound_transaction_survives_every_crash() -> None:
    """Rows and messages agree after every crash, those of the recovery included."""
    report = crash(workload, check, recover=recover)
    assert report.states > report.points > 60
