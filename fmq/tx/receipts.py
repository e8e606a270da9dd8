"""Where published runs stand, as their senders see it."""

from __future__ import annotations

from collections.abc import Iterable

from fmq.message import Receipt, receipt
from fmq.store.kinds import Run


def receipts_of(published: Iterable[Run | Receipt]) -> list[Receipt]:
    """A Receipt for each, made now unless it was read from the journal."""
    return [
        receipt(run.topic, run.queue, run.offset, run.position, run.count)
        if isinstance(run, Run)
        else run
        for run in published
    ]
