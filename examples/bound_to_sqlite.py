"""A row in sqlite3 and a message in fmq: both or neither, wherever the process dies."""

import os
import sqlite3
import tempfile

import fmq.bind


class Mortal(sqlite3.Connection):
    dies = ""

    def commit(self) -> None:
        if self.dies == "before":
            os._exit(1)
        super().commit()
        if self.dies:
            os._exit(1)


def place(engine: fmq.Engine, db: Mortal, order: str, dies: str) -> None:
    with engine.transaction(producer="checkout", bind=db) as tx:  # begins and ends both
        db.execute("INSERT INTO orders VALUES (?)", (order,))
        tx.send("orders", order.encode())
        db.dies = dies
    rows = [*db.execute("SELECT * FROM orders")]
    print(rows, [message.body for message in engine.read("orders")], flush=True)


with tempfile.TemporaryDirectory() as home:
    databases = {"checkout": f"sqlite:///{home}/shop.db"}
    for number, dies in enumerate(("", "before", "after", "")):
        if os.fork() == 0:  # a process for each, because two of them die
            db = sqlite3.connect(f"{home}/shop.db", factory=Mortal)
            db.executescript("PRAGMA synchronous=EXTRA; CREATE TABLE IF NOT EXISTS orders (name)")
            fmq.bind.create_table(db)
            with fmq.open(f"{home}/shop", resolve=databases) as engine:
                place(engine, db, f"order {number}", dies)
            os._exit(0)
        os.wait()
