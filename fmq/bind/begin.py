"""Beginning a transaction that is bound to a database, and having its checker ready."""

from __future__ import annotations

from typing import Any

from fmq.bind.find import binding_of
from fmq.bind.transaction import BoundTransaction
from fmq.feedback.checkers import Checkers
from fmq.feedback.service import Feedback
from fmq.tx.manager import TransactionManager


def begin_bound(
    manager: TransactionManager,
    feedback: Feedback,
    checkers: Checkers,
    connection: Any,
    tx_id: str | None,
    producer: str,
    check_after: float | None,
    *,
    strict: bool,
) -> BoundTransaction:
    """A transaction that commits with that of `connection`; nothing of either has begun."""
    binding = binding_of(connection)
    if checkers.needs(producer, binding.path):
        # First the database, then the checker: one that is not registered there answers nothing.
        new = all(tx.producer != producer for tx in feedback.undecided())
        binding.register(feedback.store, producer, new=new)
        checkers.add_bound(producer, binding.path, binding.check)
    tx = manager.begin(tx_id, producer or None, check_after, make=BoundTransaction)
    return tx.bind(binding, feedback, strict=strict)
