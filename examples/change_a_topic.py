"""A topic is made with its queues and a time of its own, grows, and is deleted."""

import tempfile

import fmq

with tempfile.TemporaryDirectory() as home, fmq.open(f"{home}/shop") as engine:
    topic = engine.create_topic("orders", queues=2, retain_seconds=7 * 86400)
    for number in range(4):
        engine.send("orders", b"order %d" % number, key=f"customer {number}")
    topic.add_queues(2)  # keys map anew: keep the order of a key by letting consumers finish first
    print("queues", len(engine.queues("orders")))
    topic.retain(None)  # as the options of the engine say
    topic.delete()
    print("after delete", engine.queues("orders"))
    receipt = engine.send("orders", b"first of a new topic")
    print("the name begins again at offset", receipt.offset)
