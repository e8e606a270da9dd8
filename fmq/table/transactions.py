"""The view `transactions`: one row each, from its prepare to its decision.

A decided one is a row of the split that holds its decision, which repeats what one wants to know
of it; the undecided ones are known to whoever looked at the whole journal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from fmq.message import UndecidedTransaction
from fmq.store.kinds import Decided, Kind, Run
from fmq.table.gather import ROWS
from fmq.table.records import Row, batch_of
from fmq.table.split import OpenSplit
from fmq.tx.ledger import seal_text

STATES = {Kind.COMMIT: "committed", Kind.ROLLBACK: "rolled back"}


def read_transactions(source: OpenSplit, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The transactions that were decided in the split, in the order of their decisions."""
    rows: list[Row] = []
    for append in source.appends():
        decided = append[-1]
        if isinstance(decided, Decided):
            runs = [record for record in append if isinstance(record, Run)]
            rows.append(_decided(decided, runs))
        if len(rows) >= ROWS:
            yield batch_of(rows, schema)
            rows = []
    if rows:
        yield batch_of(rows, schema)


def undecided_batch(undecided: Sequence[UndecidedTransaction], schema: pa.Schema) -> pa.RecordBatch:
    """Those that wait for their decision."""
    return batch_of([_undecided(tx) for tx in undecided], schema)


def _decided(decided: Decided, runs: list[Run]) -> dict[str, Any]:
    return {
        "tx_id": decided.tx_id,
        "state": STATES[Kind(decided.kind)],
        "producer": decided.producer or None,
        "prepared": decided.prepared_us,
        "decided": decided.time_us,
        "duration_us": decided.time_us - decided.prepared_us,
        "decided_by": decided.decided_by or None,
        "reason": decided.reason or None,
        "messages": decided.messages,
        "bytes": decided.bytes,
        "queues": [_queue(run) for run in runs if run.kind != Kind.PRE_MESSAGE],
        "asked": decided.asked,
        "position": decided.position,
        "seal": seal_text(decided.seal),
    }


def _queue(run: Run) -> dict[str, Any]:
    return {"topic": run.topic, "queue": run.queue, "offset": run.offset, "messages": run.count}


def _undecided(tx: UndecidedTransaction) -> dict[str, Any]:
    return {
        "tx_id": tx.tx_id,
        "state": "undecided",
        "producer": tx.producer,
        "prepared": tx.prepared_at,
        "messages": tx.messages,
        "bytes": tx.bytes,
        "asked": None,  # known to the engine that asks, and written down with the decision
        "position": tx.position,
        "seal": tx.seal,
    }
