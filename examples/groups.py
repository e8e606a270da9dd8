"""Members of a group share the queues of a topic; another group takes only some messages."""

import tempfile

import fmq
from fmq import filters

with tempfile.TemporaryDirectory() as home, fmq.open(f"{home}/shop") as engine:
    engine.create_topic("orders", queues=4)
    for number in range(8):
        tag = "paid" if number % 2 else "open"
        engine.send("orders", f"order {number}".encode(), key=f"customer-{number % 3}", tag=tag)

    def told(lost, gained):
        print("lost", lost, "gained", gained)

    how = {"group": "packing", "strategy": "sticky", "ordered": True}
    with (
        engine.consumer("orders", member="ada", on_change=told, **how) as ada,
        engine.consumer("orders", member="bob", **how) as bob,
    ):
        for name, member in (("ada", ada), ("bob", bob)):
            while deliveries := member.poll():
                for delivery in deliveries:
                    print(name, "packs", delivery.body.decode(), "of", delivery.key)
                    delivery.ack()
        print(engine.group("packing").explain())

    with engine.consumer("orders", group="mail", filter=filters.tags("paid")) as mail:
        while deliveries := mail.poll():
            for delivery in deliveries:
                print("mail about", delivery.body.decode())
                delivery.ack()

    engine.group("packing").seek("orders", to="earliest")  # pack all of them again
    print(sum(info.unread for info in engine.groups("packing")), "to pack")
