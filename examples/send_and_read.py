"""Send messages, look at them, and consume them with acks that survive a restart."""

import tempfile

import fmq

with tempfile.TemporaryDirectory() as home:
    with fmq.open(f"{home}/shop") as engine:
        receipt = engine.send("audit", b"started", key="worker-1", headers={"host": "a"})
        print(f"durable at {receipt.topic}/{receipt.queue}, offset {receipt.offset}")
        engine.send_many("audit", [b"one", b"two", b"three"])  # one record, one sync

        for message in engine.read("audit", offset=0, limit=2):  # looks, and changes nothing
            print(message.offset, message.body, message.key, message.headers, message.time)

        with engine.consumer("audit", group="archive") as consumer:
            for delivery in consumer.poll(limit=2, timeout=1):
                delivery.ack()  # durable when it returns

    with fmq.open(f"{home}/shop") as engine:  # the next process, say
        with engine.consumer("audit", group="archive") as consumer:
            rest = [delivery.body for delivery in consumer.poll(limit=10)]
        print("not acked before:", rest)
        assert rest == [b"two", b"three"]

    report = fmq.check(f"{home}/shop")
    assert report.ok, report.problems
    print(f"{report.messages} messages in {report.bytes} bytes, and nothing wrong")
