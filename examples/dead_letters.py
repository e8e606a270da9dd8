"""A poison message does not stop its group: it becomes a dead letter, and is replayed once the
program is better.
"""

import tempfile

import fmq


def handle(body: bytes, *, knows_decimals: bool) -> float:
    text = body.decode()
    return float(text) if knows_decimals else int(text)


def work(engine: fmq.Engine, *, knows_decimals: bool) -> None:
    with engine.consumer("amounts", group="sums") as consumer:
        while deliveries := consumer.poll():
            for delivery in deliveries:
                try:
                    print("handled", handle(delivery.body, knows_decimals=knows_decimals))
                except ValueError as error:
                    delivery.reject(str(error))  # acked, and kept, in one append
                else:
                    delivery.ack()


with tempfile.TemporaryDirectory() as home, fmq.open(f"{home}/shop") as engine:
    engine.send_many("amounts", [b"1", b"2.5", b"3"])
    work(engine, knows_decimals=False)
    dead = engine.dead_letters("sums")
    for letter in dead:
        print(f"dead letter {letter.number}: offset {letter.offset}, {letter.reason}")
    print("replayed", dead.replay())
    work(engine, knows_decimals=True)
    assert len(dead) == 0
