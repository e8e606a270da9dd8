"""A transaction that waits for its decision."""

from __future__ import annotations

from fmq import Engine


def prepared(engine: Engine, tx_id: str, size: int = 100) -> None:
    tx = engine.transaction(tx_id=tx_id)
    tx.send("t", tx_id.encode() * size)
    tx.prepare()
