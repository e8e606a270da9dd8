"""Appends that are made record by record, and change memory as a replay of them does.

What is written seldom goes this way: decisions that refer, relocations, STATE. The others go
straight (`straight.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from fmq.disk import Buffer
from fmq.store.journal import encode_append
from fmq.store.kinds import Record
from fmq.tx.apply import apply
from fmq.tx.ledger import Ledger


class Recorded:
    """Measured records, which take `size` bytes together."""

    __slots__ = ("position", "records", "size")

    def __init__(self, records: Sequence[Record], size: int) -> None:
        self.records = records
        self.size = size
        self.position = 0

    def encode(
        self, position: int, durable_to: int, seed: int, chain: int, buffers: list[Buffer]
    ) -> int:
        """Append its bytes, to stand at `position`; the chain behind them."""
        self.position = position
        return encode_append(self.records, position, durable_to, seed, chain, buffers)

    def publish(self, ledger: Ledger) -> None:
        """It is durable: let memory say so. Under the lock."""
        apply(ledger, self.records)
