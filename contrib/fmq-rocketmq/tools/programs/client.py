"""An ordinary program of RocketMQ's own Python client: client.py HOST:PORT all|die|heir"""

import os
import sys
import threading
import time

from rocketmq import (
    ClientConfiguration,
    Credentials,
    FilterExpression,
    Message,
    Producer,
    SimpleConsumer,
    TransactionChecker,
    TransactionResolution,
)

WHERE, MODE = sys.argv[1:3]
ME = "python"
CONFIGURATION = ClientConfiguration(WHERE, Credentials())
SECONDS = 60


def say(scenario, *seen):
    print(scenario, *seen, sep="\t", flush=True)


def message(topic, body, tag="t", amount="70", **more):
    made = Message()
    made.topic, made.body, made.tag, made.keys = topic, body.encode(), tag, "k"
    made.add_property("amount", amount)
    for name, value in more.items():
        setattr(made, name, value)
    return made


def take(topic, group, count, expression=None):
    wanted = {topic: expression or FilterExpression()}
    consumer = SimpleConsumer(
        CONFIGURATION, f"{ME}-{group}", wanted, await_duration=6
    )  # RocketMQ: at least 5
    consumer.startup()
    found, end = [], time.monotonic() + SECONDS
    more = 1  # one more receive: what comes twice would show there
    while (len(found) < count or more) and time.monotonic() < end:
        more -= len(found) >= count
        try:
            for each in consumer.receive(16, 30) or []:
                found.append(each.body.decode())
                consumer.ack(each)
        except Exception:  # the server does not know the consumer yet
            time.sleep(0.2)
    consumer.shutdown()
    return ",".join(found)


class Checker(TransactionChecker):
    asked = threading.Event()
    body = ""

    def check(self, found):
        Checker.body = found.body.decode()
        Checker.asked.set()
        return TransactionResolution.COMMIT


T = f"{ME}-"
producer = Producer(CONFIGURATION, [T + "tx"], checker=Checker())
producer.startup()
if MODE == "die":
    tx = producer.begin_transaction()
    producer.send(message(T + "tx", "orphan"), tx)
    os._exit(9)
if MODE == "heir":
    Checker.asked.wait(SECONDS)
    say("asked about an orphan after kill -9", Checker.body)
    say("the orphan is delivered", take(T + "tx", "heir", 1))
    os._exit(0)
for n in range(3):
    producer.send(message(T + "n", f"n{n}", tag="paid" if n else "open", amount=str(n * 50)))
say("send, receive, ack", take(T + "n", "all", 3))
say("a filter by tag", take(T + "n", "tag", 2, FilterExpression("paid")))
from rocketmq.grpc_protocol import FilterType

say("a filter in SQL92", take(T + "n", "sql", 1, FilterExpression("amount > 50", FilterType.SQL)))
for body, commits in (("committed", True), ("rolled back", False)):
    tx = producer.begin_transaction()
    producer.send(message(T + "tx2", body), tx)
    (tx.commit if commits else tx.rollback)()
tx = producer.begin_transaction()
producer.send(message(T + "tx2", "twice"), tx)
tx.commit()
try:
    tx.commit()
    say("the second commit", "accepted")
except Exception as error:
    say("the second commit", type(error).__name__)
try:
    tx.rollback()
    say("rollback after commit", "accepted")
except Exception as error:
    say("rollback after commit", type(error).__name__)
say("transactions, one committed twice", take(T + "tx2", "tx", 2))
later = int(time.time()) + 2
producer.send(message(T + "d", "delayed", delivery_timestamp=later))
sent = producer.send(message(T + "d", "recalled", delivery_timestamp=later))
producer.recall_message(T + "d", sent.recall_handle)
say("a delayed one, and one recalled", take(T + "d", "delay", 1))
for n in range(4):
    producer.send(message(T + "f", f"f{n}", message_group="g"))
say("a message group in order", take(T + "f", "fifo", 4))
os._exit(0)
