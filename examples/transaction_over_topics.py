"""A transaction over several topics: all of its messages at once, or none of them."""

import tempfile

import fmq

with tempfile.TemporaryDirectory() as home, fmq.open(f"{home}/shop") as engine:
    with engine.transaction(tx_id="order-1", producer="checkout") as tx:
        tx.send("orders", b"order 1", key="c-7")
        tx.send("emails", b"receipt 1")
        tx.send_many("stock", [b"-1 chair", b"-1 table"])
        assert engine.read("orders") == []  # nobody sees anything before the block ends

    for topic in ("orders", "emails", "stock"):
        print(topic, [message.body for message in engine.read(topic)])

    try:
        with engine.transaction() as tx:
            tx.send("orders", b"order 2")
            raise ValueError("the card was declined")
    except ValueError as error:
        print(f"rolled back: {error}")
    assert len(engine.read("orders")) == 1

    outcome = engine.outcome("order-1")
    print(outcome.tx_id, outcome.state, "with", outcome.messages, "messages")
    for receipt in outcome.receipts:
        print(f"  {receipt.count} in {receipt.topic}/{receipt.queue} from {receipt.offset} on")

    # The first durable decision wins: the same again is a success, the opposite an error.
    engine.decide("order-1", "commit")
    try:
        engine.decide("order-1", "rollback")
    except fmq.errors.AlreadyDecided as error:
        print(error)
