"""A shop is crashed wherever it can make a difference: who loses an order, and who does not."""

import sqlite3
from contextlib import closing

import fmq
from fmq.testing import CrashFailure, World, crash

INSERT = "INSERT INTO orders VALUES ('order 1', 'placed')"


def database(world: World) -> closing[sqlite3.Connection]:
    connection = sqlite3.connect(world.path / "shop.db")  # world.path is crashed with the engine
    connection.execute("CREATE TABLE IF NOT EXISTS orders (name PRIMARY KEY, state)")
    return closing(connection)


def row_first(engine: fmq.Engine, world: World) -> None:
    with database(world) as db:
        db.execute(INSERT)
        db.commit()
        engine.send("orders", b"order 1")


def message_first(engine: fmq.Engine, world: World) -> None:
    with database(world) as db:
        engine.send("orders", b"order 1")
        db.execute(INSERT)
        db.commit()


def in_a_transaction(engine: fmq.Engine, world: World) -> None:
    with database(world) as db, engine.transaction(tx_id="order 1", producer="shop") as tx:
        tx.send("orders", b"order 1")
        db.execute(INSERT)  # marks the database's transaction, under a unique key
        tx.prepare()
        db.commit()
    world.tell("order 1 is placed")  # no crash can take that back


def settle(engine: fmq.Engine, world: World) -> None:
    @engine.checker("shop")  # asked about whatever was prepared and is not decided
    def ask_database(question: fmq.Question) -> str:
        with database(world) as db:  # no row? leave one, so that it can never commit later
            db.execute("INSERT OR IGNORE INTO orders VALUES (?, 'cancelled')", (question.tx_id,))
            db.commit()
            query = "SELECT state FROM orders WHERE name=?"
            [state] = db.execute(query, (question.tx_id,)).fetchone()
        return "commit" if state == "placed" else "rollback"

    engine.settle()


def check(engine: fmq.Engine, world: World) -> None:
    with database(world) as db:
        rows = db.execute("SELECT name FROM orders WHERE state='placed'").fetchall()
    messages = [(message.body.decode(),) for message in engine.read("orders")]
    assert rows == messages, f"{rows=}, {messages=}"
    assert rows or not world.told


for place in (row_first, message_first, in_a_transaction):
    try:
        print(f"{place.__name__}: {crash(place, check, recover=settle)}")
    except CrashFailure as failure:
        print(f"{place.__name__}: {failure}")
