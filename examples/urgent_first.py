"""Urgent jobs overtake a backlog, old ones are not starved, and what is too late is left out."""

import tempfile
from datetime import UTC, datetime, timedelta

import fmq

with tempfile.TemporaryDirectory() as home, fmq.open(f"{home}/shop") as engine:
    engine.send_many("mails", [f"newsletter {n}".encode() for n in range(1000)])
    in_time = datetime.now(UTC) + timedelta(hours=1)
    too_late = datetime.now(UTC) - timedelta(hours=1)
    for number in range(12):
        body = f"password reset {number}".encode()
        engine.send("mails", body, priority=9, expires_at=in_time if number % 4 else too_late)

    with engine.consumer("mails", group="senders") as consumer:
        for _ in range(12):
            for delivery in consumer.poll(limit=1):
                print(delivery.body.decode())
                delivery.ack()

    engine.sync()
    (info,) = engine.groups("senders")
    print(f"{info.expired} had expired, {info.unread} are left")
