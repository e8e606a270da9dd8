"""How many messages each transaction has: as its COMMIT states, and as rows show it."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from fmq.table.schema import schema_of
from fmq.table.selection import Selection

STATED = schema_of("transactions", ["tx_id", "state", "queues"], fleet=False)
COUNTED = ("tx_id", "delayed")
"""Columns without which rows cannot be counted. A delayed message is shown by another append."""


def stated_by(decided: Iterable[pa.RecordBatch], wanted: Selection) -> dict[str, int]:
    """Return what the COMMITs among `decided`, rows of STATED, say of the wanted topics."""
    return _summed([_shown(batch, wanted) for batch in decided])


def _shown(decided: pa.RecordBatch, wanted: Selection) -> pa.Table:
    decided = decided.filter(pc.equal(decided.column("state"), "committed"))
    runs = decided.column("queues")
    each = runs.flatten()
    topic = each.field("topic")
    topics = [name for name in topic.unique().to_pylist() if wanted.topic(name)]
    shown = pc.is_in(topic, pa.array(topics, pa.string()))
    ids = decided.column("tx_id").take(pc.list_parent_indices(runs))
    return pa.table({"tx_id": ids, "messages": each.field("messages")}).filter(shown)


def counted_in(rows: pa.Table) -> dict[str, int]:
    """Return how many of `rows` each transaction has."""
    counts = pc.and_(pc.is_valid(rows.column("tx_id")), pc.invert(rows.column("delayed")))
    ids = rows.column("tx_id").filter(counts)
    return _summed([pa.table({"tx_id": ids, "messages": pa.repeat(1, len(ids))})])


def _summed(tables: list[pa.Table]) -> dict[str, int]:
    if not tables:
        return {}
    found = pa.concat_tables(tables, promote_options="permissive").group_by("tx_id")
    ids, numbers = found.aggregate([("messages", "sum")]).select(["tx_id", "messages_sum"]).columns
    return dict(zip(ids.to_pylist(), numbers.to_pylist(), strict=True))
