"""A reminder that belongs to its order, comes later, and is taken back if it is not needed."""

import sqlite3
import tempfile
import time
from datetime import UTC, datetime, timedelta

import fmq
from fmq.bind import create_table

with tempfile.TemporaryDirectory() as home, fmq.open(f"{home}/shop") as engine:
    database = sqlite3.connect(f"{home}/shop.db")
    database.execute("PRAGMA journal_mode=WAL")
    create_table(database)
    database.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, paid INTEGER)")

    # The orders and their reminders are there together, or not at all.
    with engine.transaction(bind=database) as tx:
        database.execute("INSERT INTO orders VALUES (1, 0), (2, 0)")
        tx.send("reminders", b"pay order 1", key="1", delay=0.3)
        tx.send("reminders", b"pay order 2", key="2", delay=0.3)
    first, second = tx.commit()
    print("wait:", [receipt.due.strftime("%X") for receipt in engine.delayed("reminders")])

    # Order 1 is paid in time: its reminder never appears.
    print("recalled:", engine.recall(first))

    started = time.monotonic()
    with engine.consumer("reminders", group="mail") as consumer:
        for delivery in consumer.poll(timeout=10):
            print(delivery.body.decode(), f"after {time.monotonic() - started:.1f} s")
            delivery.ack()
    print("recalled:", engine.recall(second))  # too late

    # Years ahead, and any number of them.
    engine.send("reminders", b"renew", deliver_at=datetime.now(UTC) + timedelta(days=365))
    print("still wait:", engine.stats().delayed)
