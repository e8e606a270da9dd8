"""Take what a relay has copied into RocketMQ, and do each message once.

    drop_repeats.py HOST:PORT TOPIC DATABASE

A relay that was killed sends its last batch again. Each message has a property `fmq-id`, which is
stored in the transaction of the database that does the work.
"""

import sqlite3
import sys
import time

from rocketmq import ClientConfiguration, Credentials, FilterExpression, SimpleConsumer

WHERE, TOPIC, DATABASE = sys.argv[1:4]
database = sqlite3.connect(DATABASE)
database.execute("CREATE TABLE IF NOT EXISTS seen (fmq_id TEXT PRIMARY KEY)")
database.execute("CREATE TABLE IF NOT EXISTS work (body BLOB)")
configuration = ClientConfiguration(WHERE, Credentials())
consumer = SimpleConsumer(configuration, "once", {TOPIC: FilterExpression()}, await_duration=1)
consumer.startup()
idle_since = time.monotonic()
while time.monotonic() - idle_since < 10:  # a service would go on for ever
    for message in consumer.receive(16, 30) or []:
        idle_since = time.monotonic()
        with database:
            seen = database.execute(
                "INSERT OR IGNORE INTO seen VALUES (?)", (message.properties["fmq-id"],)
            )
            if seen.rowcount:  # not seen before
                database.execute("INSERT INTO work VALUES (?)", (message.body,))
        consumer.ack(message)
consumer.shutdown()
