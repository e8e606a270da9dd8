"""Calls of RocketMQ's own Python client: costs.py HOST:PORT send|transaction|receive COUNT"""

import os
import sys
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

WHERE, KIND, COUNT = sys.argv[1], sys.argv[2], int(sys.argv[3])
CONFIGURATION = ClientConfiguration(WHERE, Credentials())
TOPICS = {"send": "python-n", "transaction": "python-tx", "receive": "python-n"}
TOPIC = TOPICS[KIND]


class Checker(TransactionChecker):
    def check(self, message):
        return TransactionResolution.COMMIT


if KIND == "receive":
    consumer = SimpleConsumer(CONFIGURATION, "python-costs", {TOPIC: FilterExpression()})
    consumer.startup()
    done, end = 0, time.monotonic() + 120
    while done < COUNT and time.monotonic() < end:
        try:
            for message in consumer.receive(16, 60) or []:
                consumer.ack(message)
                done += 1
        except Exception:  # the server does not know the consumer yet
            time.sleep(0.2)
else:
    producer = Producer(CONFIGURATION, [TOPIC], checker=Checker())
    producer.startup()
    for _ in range(COUNT):
        message = Message()
        message.topic, message.body, message.tag = TOPIC, b"x" * 200, "t"
        if KIND == "send":
            producer.send(message)
        else:
            tx = producer.begin_transaction()
            producer.send(message, tx)
            tx.commit()
    done = COUNT
print(done, flush=True)
os._exit(0)
