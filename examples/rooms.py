"""Members in two rooms: each queue goes to the nearest member, and to any if there is none."""

import tempfile

import fmq
from fmq import allocation

ROOM_OF_QUEUE = {0: "east", 1: "east", 2: "west", 3: "west"}


def room_of(member):
    return member.split("-")[0]


nearby = allocation.nearby(allocation.average, queue_room=ROOM_OF_QUEUE.get, member_room=room_of)

with tempfile.TemporaryDirectory() as home, fmq.open(f"{home}/shop") as engine:
    engine.create_topic("orders", queues=4)
    east = engine.consumer("orders", group="packing", member="east-1", strategy=nearby)
    print("alone:", engine.group("packing").members()[0].owns)
    with engine.consumer("orders", group="packing", member="west-1", strategy=nearby):
        for member in engine.group("packing").members():
            print(member.name, "has", [queue for _, queue in member.owns])
        print(engine.group("packing").explain())
    east.close()
    # A strategy is pure: it can be tried without an engine.
    print(allocation.consistent_hash(virtual_nodes=10)([0, 1, 2, 3], ["a", "b"]))
