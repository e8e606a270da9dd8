"""Where published runs stand, as their senders see it."""

from __future__ import annotations

from collections.abc import Iterable

from fmq.message import Receipt, receipt
from fmq.store.kinds import Record, Run


def receipts_of(published: Iterable[Record | Receipt]) -> list[Receipt]:
    """Return a Receipt for each run, made now unless it was read from the journal."""
    receipts = []
    for each in published:
        if isinstance(each, Run):
            receipts.append(receipt(each.topic, each.queue, each.offset, each.position, each.count))
        elif isinstance(each, Receipt):
            receipts.append(each)
    return receipts
