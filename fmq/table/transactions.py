"""The view `transactions`: one row for each, from its prepare to its decision.

A decided transaction is a row of the split with its decision, which repeats what the row needs.
Undecided ones are known only from the whole journal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from fmq.store.bytes.joint_column import joint_in
from fmq.store.bytes.kinds import TIMER, Decided, Kind, Run
from fmq.store.bytes.timing import timing_in
from fmq.table.records import NO_OFFSET_YET, RecordRow, in_batches
from fmq.table.snapshot import Undecided
from fmq.table.split import OpenSplit
from fmq.tx.ledger.seal import seal_text

STATES = {Kind.COMMIT: "committed", Kind.ROLLBACK: "rolled back"}


def read_transactions(source: OpenSplit, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the transactions that were decided in the split, in the order of their decisions."""
    return in_batches(_rows(source), schema)


def _rows(source: OpenSplit) -> Iterator[RecordRow]:
    for append in source.appends():
        decided = append[-1]
        if isinstance(decided, Decided):
            yield _decided(decided, [record for record in append if isinstance(record, Run)])


def undecided_rows(undecided: Iterable[Undecided]) -> tuple[RecordRow, ...]:
    """Return the rows of undecided transactions."""
    return tuple(_undecided(tx) for tx in undecided)


def _decided(decided: Decided, runs: list[Run]) -> dict[str, Any]:
    joint = joint_in(decided.extension)
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
        "queues": [_queue(run, run.offset) for run in runs if run.kind not in NO_OFFSET_YET],
        "delayed": sum(run.count for run in runs if run.kind == TIMER),
        "asked": decided.asked,
        "position": decided.position,
        "seal": seal_text(decided.seal),
        "joint": None if joint is None else joint.joint,
    }


def _queue(run: Run, offset: int | None) -> dict[str, Any]:
    return {"topic": run.topic, "queue": run.queue, "offset": offset, "messages": run.count}


def _undecided(undecided: Undecided) -> dict[str, Any]:
    tx, runs = undecided
    late = {run.position for run in runs if timing_in(run.extension) is not None}
    return {
        "tx_id": tx.tx_id,
        "state": "undecided",
        "producer": tx.producer,
        "prepared": tx.prepared_at,
        "messages": tx.messages,
        "bytes": tx.bytes,
        "queues": [_queue(run, None) for run in runs if run.position not in late],
        "delayed": sum(run.count for run in runs if run.position in late),
        # Only the running engine knows the count. It writes the count with the decision.
        "asked": None,
        "position": tx.position,
        "seal": tx.seal,
    }
