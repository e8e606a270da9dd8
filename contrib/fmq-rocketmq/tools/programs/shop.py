"""An order service with RocketMQ's own Python client: shop.py HOST:PORT FOLDER NAME sell|answer

Its database is the folder: each process writes its orders into a file of its own, NAME.orders, and
any process can read all. FOLDER/NAME.gone says that a process has ended.
"""

import os
import random
import sys
import threading
from pathlib import Path

from rocketmq import (
    ClientConfiguration,
    Credentials,
    Message,
    Producer,
    TransactionChecker,
    TransactionResolution,
)

WHERE, FOLDER, NAME, MODE = sys.argv[1:5]
TOPIC = "orders"


def say(word):
    """Print a line in one piece. `print` writes its end apart, and a thread may come between."""
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def outcome(order):
    """Return what the database says about an order: paid, refused, or "" if it has none."""
    orders = Path(FOLDER, order.rpartition("-")[0] + ".orders")
    rows = orders.read_text().splitlines() if orders.exists() else []
    return dict(row.split() for row in rows).get(order, "")


class Checker(TransactionChecker):
    def check(self, found):
        order = found.body.decode()
        # Look first whether its process has ended: after that no row can come.
        is_gone = Path(FOLDER, order.rpartition("-")[0] + ".gone").exists()
        said = outcome(order)
        say("asked")
        if said == "paid":
            return TransactionResolution.COMMIT
        return TransactionResolution.ROLLBACK if said or is_gone else TransactionResolution.UNKNOWN


producer = Producer(ClientConfiguration(WHERE, Credentials()), [TOPIC], checker=Checker())
producer.startup()
say("ready")
if MODE == "answer":
    threading.Event().wait()
with open(Path(FOLDER, NAME + ".orders"), "a") as database:
    count = 0
    while True:
        order, count = f"{NAME}-{count}", count + 1
        message = Message()
        message.topic, message.body = TOPIC, order.encode()
        tx = producer.begin_transaction()
        producer.send(message, tx)
        is_paid = random.random() < 0.8
        database.write(f"{order} {'paid' if is_paid else 'refused'}\n")
        database.flush()
        os.fsync(database.fileno())
        if random.random() < 0.9:  # one in ten is left to the checker
            (tx.commit if is_paid else tx.rollback)()
        say("order")
