"""A shop is crashed wherever it can make a difference: who loses an order, and who does not."""

import sqlite3
from contextlib import closing

import fmq
import fmq.bind
from fmq.testing import CrashFailure, World, crash

INSERT = "INSERT INTO orders VALUES ('order 1')"


def database(world: World) -> closing[sqlite3.Connection]:
    db = sqlite3.connect(world.path / "shop.db")  # what is in world.path is crashed, too
    db.executescript("PRAGMA synchronous=EXTRA; CREATE TABLE IF NOT EXISTS orders (name)")
    fmq.bind.create_table(db)
    return closing(db)


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


def bound(engine: fmq.Engine, world: World) -> None:
    with database(world) as db:
        with engine.transaction(producer="shop", bind=db) as tx:
            db.execute(INSERT)
            tx.send("orders", b"order 1")
        world.tell("order 1 is placed")  # no crash can take that back


def settle(engine: fmq.Engine, world: World) -> None:  # as fmq.open(..., resolve=...) does
    engine.checker("shop")(fmq.bind.checker_of(f"sqlite:///{world.path}/shop.db"))
    engine.settle()


def check(engine: fmq.Engine, world: World) -> None:
    with database(world) as db:
        rows = [name for (name,) in db.execute("SELECT name FROM orders")]
    messages = [message.body.decode() for message in engine.read("orders")]
    assert rows == messages, f"{rows=}, {messages=}"
    assert rows or not world.told


for place in (row_first, message_first, bound):
    try:
        print(f"{place.__name__}: {crash(place, check, recover=settle)}")
    except CrashFailure as failure:
        print(f"{place.__name__}: {failure}")
