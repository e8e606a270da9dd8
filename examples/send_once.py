"""A message is sent once, although the program that sends it crashes and sends it again."""

import os
import tempfile

import fmq

ORDERS = {"order 1": b"3 teapots", "order 2": b"a kettle", "order 3": b"12 cups"}


def ship(engine: fmq.Engine, crash_at: str) -> None:
    for order, what in ORDERS.items():
        receipt = engine.send("parcels", what, message_id=order)
        if order == crash_at:
            os._exit(1)  # a crash: sent, and this program does not know it
        print(f"{order} is number {receipt.offset}", flush=True)


with tempfile.TemporaryDirectory() as home:
    for crash_at in ("order 1", "order 2", ""):
        if os.fork() == 0:  # a process for each, because two of them crash
            with fmq.open(f"{home}/shop") as engine:
                ship(engine, crash_at)
                print([message.body for message in engine.read("parcels")], flush=True)
            os._exit(0)
        os.wait()
