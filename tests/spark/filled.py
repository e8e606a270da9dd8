"""A journal with a bit of everything in it."""

import fmq

SEGMENT_BYTES = 16 * 1024


def fill(path: str, segment_bytes: int = SEGMENT_BYTES) -> None:
    """A bit of everything: batches, single ones, all columns, transactions, several segments."""
    with fmq.open(path, fmq.Options(segment_bytes=segment_bytes, reference_bytes_min=8)) as engine:
        for round in range(20):
            engine.send("orders", b"one %d" % round)
            engine.send_many("orders", [b"equal"] * 40)
            engine.send_many("orders", [b"x" * size for size in range(30)])
            engine.send_many("emails", [rich(number) for number in range(20)])
            with engine.transaction(producer="checkout") as tx:
                tx.send("orders", b"in one phase", key="k", tag="t", headers={"trace": "9f"})
                tx.send("emails", b"")
            two = engine.transaction(tx_id=f"two-{round}", producer="checkout")
            two.send("emails", b"in two phases", key="k")
            two.send_many("orders", [b"a", b"bb", b"ccc"])
            two.prepare()
            if round % 4 == 3:
                two.rollback()
            elif round % 4 != 2:
                two.commit()


def rich(number: int) -> fmq.Message:
    return fmq.Message(
        b"y" * number,
        key=f"key ö {number}" if number % 3 else None,
        tag="" if number % 2 else None,
        headers={f"name {i}": f"wert ü {i}" for i in range(number % 4)} or None,
    )
