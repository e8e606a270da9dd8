"""A producer died between prepare and its decision: a checker looks at the messages to decide."""

import tempfile

import fmq

PAID = {"order 2"}  # what the shop's own database would say

with tempfile.TemporaryDirectory() as home:
    with fmq.open(f"{home}/shop") as engine:
        for name in ("order 1", "order 2"):
            tx = engine.transaction(producer="shop")
            tx.send("paid", name.encode(), key=name)
            tx.prepare()  # and then the program dies
    with fmq.open(f"{home}/shop") as engine:

        @engine.checker("shop")
        def was_it_paid(question):
            keys = [message.key for message in question.messages()]
            print("asked about", keys)
            return "commit" if PAID.issuperset(keys) else "rollback"

        print(engine.settle())
        print([message.body.decode() for message in engine.read("paid")])
