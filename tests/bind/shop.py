"""A shop with a database of its own: orders in sqlite3, messages in fmq, the two to agree."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import aiosqlite

import fmq
import fmq.bind

PRODUCER = "checkout"


def connect(
    folder: Path, kind: type[sqlite3.Connection] = sqlite3.Connection
) -> sqlite3.Connection:
    """Connect to the shop's database, as durable as fmq is, with its tables."""
    connection = sqlite3.connect(folder / "shop.db", factory=kind)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE IF NOT EXISTS orders (name TEXT PRIMARY KEY)")
    fmq.bind.create_table(connection)
    return connection


def place(
    engine: fmq.Engine, connection: sqlite3.Connection, order: str, tx_id: str | None = None
) -> None:
    """Place one order: a row and a message, or neither."""
    with engine.transaction(tx_id=tx_id, producer=PRODUCER, bind=connection) as tx:
        connection.execute("INSERT INTO orders VALUES (?)", (order,))
        tx.send("orders", order.encode())


def leave_prepared(engine: fmq.WritingEngine, tx_id: str, body: bytes = b"one") -> None:
    """Leave a bound transaction prepared, as if its program died before the database's commit."""
    tx = engine.transaction(tx_id=tx_id, producer=PRODUCER)
    tx._buffer.bound = True  # as all that fmq.bind begins
    tx.send("orders", body)
    tx.prepare()


def question(engine: fmq.Engine, tx_id: str = "order-1", body: bytes = b"one") -> fmq.Question:
    """Return the question that a checker is asked about the transaction."""
    leave_prepared(engine, tx_id, body)
    [found] = engine.feedback.ask_about(tx_id)
    return found


async def place_on_loop(
    engine: fmq.Engine, connection: aiosqlite.Connection, order: str, tx_id: str | None = None
) -> None:
    """Place one order with asyncio."""
    async with engine.transaction(tx_id=tx_id, producer=PRODUCER, bind=connection) as tx:
        await connection.execute("INSERT INTO orders VALUES (?)", (order,))
        tx.send("orders", order.encode())


def reopened(folder: Path) -> fmq.Engine:
    """Open the engine after a crash, with the database to ask about the undecided."""
    return fmq.open(folder / "shop", resolve={PRODUCER: f"sqlite:///{folder}/shop.db"})


def rows(folder: Path) -> list[str]:
    with contextlib.closing(sqlite3.connect(folder / "shop.db")) as connection:
        return [name for (name,) in connection.execute("SELECT name FROM orders ORDER BY rowid")]


def messages(engine: fmq.Engine) -> list[str]:
    return [message.body.decode() for message in engine.read("orders", limit=9999)]
