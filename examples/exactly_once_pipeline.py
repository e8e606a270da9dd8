"""Consume, transform, produce: each message counts once, whatever happens in between."""

import json
import tempfile

import fmq


def bill(order: bytes) -> bytes:
    item, price = order.decode().split()
    return json.dumps({"item": item, "cents": round(float(price) * 100)}).encode()


def run(engine: fmq.Engine, *, fail_at: int | None = None) -> None:
    with engine.consumer("orders", group="billing") as consumer:
        while deliveries := consumer.poll(limit=2):
            # The bills and the acks are one commit: both are durable, or neither is.
            with engine.transaction(producer="billing") as tx:
                for delivery in deliveries:
                    if delivery.offset == fail_at:
                        raise RuntimeError(f"failed at offset {fail_at}")
                    tx.send("bills", bill(delivery.body), key=delivery.key)
                    tx.ack(delivery)


with tempfile.TemporaryDirectory() as home, fmq.open(f"{home}/shop") as engine:
    engine.send_many("orders", [b"chair 49.90", b"table 120", b"lamp 15.5", b"rug 80", b"bed 300"])
    try:
        run(engine, fail_at=3)  # the second transaction rolls back, its acks with it
    except RuntimeError as error:
        print(f"{error}; bills so far: {len(engine.read('bills'))}")
    run(engine)
    for message in engine.read("bills"):
        print(message.offset, message.body.decode())
    assert len(engine.read("bills")) == 5
