"""Two phases: the messages exist if, and only if, sqlite3 committed; after a crash as well."""

import os
import sqlite3
import tempfile

import fmq


def place(engine: fmq.Engine, database: sqlite3.Connection, order: str) -> None:
    with engine.transaction(tx_id=order) as tx:  # commits the messages at its end
        tx.send("orders", order.encode())
        database.execute("INSERT INTO orders VALUES (?, 'placed')", (order,))  # the last statement
        tx.prepare()  # durable, sealed, invisible
        if order == "order 2":
            os._exit(1)  # a crash: prepared, and the database has not committed
        database.commit()
        if order == "order 3":
            os._exit(1)  # a crash: the database has committed, and the engine does not know


def settle(engine: fmq.Engine, database: sqlite3.Connection) -> None:
    for tx in engine.undecided():  # no row? leave one, so that the order can never commit later
        database.execute("INSERT OR IGNORE INTO orders VALUES (?, 'cancelled')", (tx.tx_id,))
        [state] = database.execute("SELECT state FROM orders WHERE name=?", (tx.tx_id,)).fetchone()
        database.commit()
        engine.decide(tx.tx_id, "commit" if state == "placed" else "rollback", seal=tx.seal)


with tempfile.TemporaryDirectory() as home:
    for order in ("order 1", "order 2", "order 3", "order 4"):
        if os.fork() == 0:  # a process for each, because two of them crash
            with fmq.open(f"{home}/shop") as engine, sqlite3.connect(f"{home}/shop.db") as db:
                db.execute("CREATE TABLE IF NOT EXISTS orders (name PRIMARY KEY, state)")
                settle(engine, db)
                place(engine, db, order)
                print([message.body for message in engine.read("orders")], flush=True)
            os._exit(0)
        os.wait()
