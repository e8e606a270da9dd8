"""broadcast=True: each screen of a hall gets every price, and leaves nothing behind."""

import tempfile

import fmq

with tempfile.TemporaryDirectory() as home, fmq.open(f"{home}/shop") as engine:
    engine.send("prices", b"tea 3.00")  # before any screen is there
    screens = [engine.consumer("prices", group="hall", broadcast=True) for _ in range(2)]
    engine.send("prices", b"tea 3.20")
    for screen in screens:
        for delivery in screen.poll():
            print(screen.group, "shows", delivery.body.decode())
            delivery.ack()
        screen.close()
    print("groups left:", engine.groups())
