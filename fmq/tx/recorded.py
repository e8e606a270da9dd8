"""Appends that are made record by record, and change memory as a replay of them does.

What is written seldom goes this way: decisions that refer, relocations, STATE. The others go
straight (`straight.py`).
"""

from __future__ import annotations

from fmq.store.journal import Records
from fmq.tx.apply import apply
from fmq.tx.ledger import Ledger


class Recorded(Records):
    """Records that are applied when they are durable."""

    __slots__ = ()

    def publish(self, ledger: Ledger) -> None:
        """It is durable: let memory say so. Under the lock."""
        apply(ledger, self.records)
