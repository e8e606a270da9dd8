"""A group is made beforehand, moved by hand and deleted; what it passes over is counted."""

import tempfile

import fmq


def handled(engine):
    with engine.consumer("orders", group="billing") as consumer:
        found = []
        while deliveries := consumer.poll():
            for delivery in deliveries:
                found.append(delivery.body.decode())
                delivery.ack()
        return found


with tempfile.TemporaryDirectory() as home, fmq.open(f"{home}/shop") as engine:
    engine.send_many("orders", [f"order {number}".encode() for number in range(6)])
    engine.create_group("billing", "orders", at=2)  # or "earliest", "latest", a time
    group = engine.group("billing")
    print("from 2 on:", handled(engine))
    group.seek("orders", offset=4)  # back: what is above it comes again
    print("again from 4 on:", handled(engine))
    group.seek("orders", to="earliest")
    group.skip("orders", 0, 1)  # one message that nobody can handle
    print("all but order 1:", handled(engine))
    (info,) = group.infos()
    print("unread", info.unread, "skipped", info.skipped)
    group.delete()
    print("groups left:", engine.groups())
