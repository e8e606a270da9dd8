"""An order and its Celery task commit together, or neither does; then a worker does the tasks."""

import sqlite3
import tempfile

from celery import Celery
from celery.contrib.testing.worker import start_worker

import fmq.bind
import fmq.compat.kombu

with tempfile.TemporaryDirectory() as home, fmq.open(f"{home}/jobs") as engine, engine.serve():
    app = Celery("shop", broker=f"fmq://{home}/jobs")  # as any process of the shop has it
    done = []

    @app.task
    def mail(order):
        done.append(order)

    database = sqlite3.connect(f"{home}/shop.db")
    database.executescript("PRAGMA synchronous=EXTRA; CREATE TABLE orders (name)")
    fmq.bind.create_table(database)
    for order, fails in (("order 1", False), ("order 2", True), ("order 3", False)):
        try:
            with engine.transaction(producer="shop", bind=database):
                database.execute("INSERT INTO orders VALUES (?)", (order,))
                mail.delay(order)  # belongs to the block
                if fails:
                    raise fmq.RollBack
        except fmq.RollBack:
            print(order, "is gone, and so is its task")

    with start_worker(app, perform_ping_check=False):
        while len(done) < 2:
            engine.read("nothing", timeout=0.05)  # wait a moment
    print(sorted(done))
    database.close()
