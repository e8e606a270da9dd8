"""An order and its huey job commit together, or neither does; then huey does the jobs."""

import sqlite3
import tempfile

import fmq.bind
from fmq.compat.huey import FmqHuey

with tempfile.TemporaryDirectory() as home, fmq.open(f"{home}/jobs") as engine:
    huey = FmqHuey("shop", engine=engine, read_timeout=0.1)

    @huey.task()
    def mail(order):
        return f"mailed {order}"

    database = sqlite3.connect(f"{home}/shop.db")
    database.executescript("PRAGMA synchronous=EXTRA; CREATE TABLE orders (name)")
    fmq.bind.create_table(database)

    def place(order, fails=False):
        with engine.transaction(producer="shop", bind=database):
            database.execute("INSERT INTO orders VALUES (?)", (order,))
            result = mail(order)  # belongs to the block
            if fails:
                raise fmq.RollBack
        return result

    result = place("order 1")
    try:
        place("order 2", fails=True)
    except fmq.RollBack:
        print("order 2 is gone, and so is its job")

    consumer = huey.create_consumer(workers=2, periodic=False)
    consumer.start()
    print(result(blocking=True, timeout=30))
    consumer.stop(graceful=True)
    print(huey.pending_count(), "jobs are left")
    huey.storage.close()
    database.close()
