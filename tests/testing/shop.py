"""A shop that keeps orders in sqlite3 and sends a message for each, in ways right and wrong."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

import fmq
from fmq.testing import World
from fmq.testing.world import Act

ORDERS = ("order 1", "order 2")
INSERT = "INSERT INTO orders VALUES (?, 'placed')"
Place = Callable[[fmq.Engine, sqlite3.Connection, str], None]


@contextmanager
def database(world: World) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(world.path / "shop.db")
    try:
        connection.execute("CREATE TABLE IF NOT EXISTS orders (name PRIMARY KEY, state)")
        yield connection
    finally:
        connection.close()


def row_first(engine: fmq.Engine, rows: sqlite3.Connection, order: str) -> None:
    rows.execute(INSERT, (order,))
    rows.commit()
    engine.send("orders", order.encode())


def message_first(engine: fmq.Engine, rows: sqlite3.Connection, order: str) -> None:
    engine.send("orders", order.encode())
    rows.execute(INSERT, (order,))
    rows.commit()


def row_inside_block(engine: fmq.Engine, rows: sqlite3.Connection, order: str) -> None:
    """Nothing but the end of two blocks lies between the two commits: the row's comes first."""
    with engine.transaction() as tx, rows:
        rows.execute(INSERT, (order,))
        tx.send("orders", order.encode())


def message_inside_block(engine: fmq.Engine, rows: sqlite3.Connection, order: str) -> None:
    """The same, and the messages are committed first."""
    with rows, engine.transaction() as tx:
        rows.execute(INSERT, (order,))
        tx.send("orders", order.encode())


def from_one_line(engine: fmq.Engine, rows: sqlite3.Connection, order: str) -> None:
    """The two commits are called by the same line."""
    rows.execute(INSERT, (order,))
    steps: list[Callable[[], object]] = [rows.commit, lambda: engine.send("orders", order.encode())]
    for step in steps:
        step()


def prepared_too_late(engine: fmq.Engine, rows: sqlite3.Connection, order: str) -> None:
    with engine.transaction(tx_id=order) as tx:
        tx.send("orders", order.encode())
        rows.execute(INSERT, (order,))
        rows.commit()
        tx.prepare()


def right(engine: fmq.Engine, rows: sqlite3.Connection, order: str) -> None:
    """Mark, prepare, commit, confirm."""
    with engine.transaction(tx_id=order, producer="shop") as tx:
        tx.send("orders", order.encode())
        rows.execute(INSERT, (order,))
        tx.prepare()
        rows.commit()


def settle(engine: fmq.Engine, world: World) -> None:
    """Ask the database what became of each undecided order, and leave a tombstone if nothing."""
    with database(world) as rows:
        for tx in engine.undecided():
            rows.execute("INSERT OR IGNORE INTO orders VALUES (?, 'cancelled')", (tx.tx_id,))
            found = rows.execute("SELECT state FROM orders WHERE name=?", (tx.tx_id,)).fetchone()
            rows.commit()
            engine.decide(tx.tx_id, "commit" if found == ("placed",) else "rollback", seal=tx.seal)


def settle_by_checker(engine: fmq.Engine, world: World) -> None:
    """The same by feedback: fmq asks, and decides by the answer."""

    @engine.checker("shop")
    def ask(question: fmq.Question) -> Literal["commit", "rollback"]:
        with database(world) as rows:
            rows.execute("INSERT OR IGNORE INTO orders VALUES (?, 'cancelled')", (question.tx_id,))
            rows.commit()
            found = rows.execute("SELECT state FROM orders WHERE name=?", (question.tx_id,))
            return "commit" if found.fetchone() == ("placed",) else "rollback"

    engine.settle()


def settle_by_guess(engine: fmq.Engine, world: World) -> None:
    """Take every undecided order for placed."""
    for tx in engine.undecided():
        engine.decide(tx.tx_id, "commit", seal=tx.seal)


def check(engine: fmq.Engine, world: World) -> None:
    """There is a message for each row and a row for each message, and for what customers heard."""
    with database(world) as connection:
        placed = connection.execute("SELECT name FROM orders WHERE state='placed'").fetchall()
    rows = [name for (name,) in placed]
    messages = [bytes(message.body).decode() for message in engine.read("orders")]
    assert rows == messages, f"{rows=} {messages=}"
    assert set(world.told) <= set(rows), f"told {world.told}, {rows=}"


def shop(place: Place) -> Act:
    """A workload: every order is placed, and then its customer is told."""

    def workload(engine: fmq.Engine, world: World) -> None:
        with database(world) as rows:
            for order in ORDERS:
                place(engine, rows, order)
                world.tell(order)

    return workload
