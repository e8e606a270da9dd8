"""The view `records` of a split: the raw journal, one row for each record.

It also has records that were rolled back or are undecided, and records that a relocation wrote
again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from fmq.errors import FmqError
from fmq.store.change_words import change_said
from fmq.store.decoding import columns_of
from fmq.store.internal import shown
from fmq.store.kinds import (
    AckRange,
    Acks,
    Carryover,
    Changed,
    ChangeKind,
    Decided,
    IdsKept,
    Kind,
    Marks,
    Prepare,
    Record,
    Run,
    TopicMade,
    Tried,
)
from fmq.table.gather import ROWS
from fmq.table.split import OpenSplit
from fmq.tx.ledger import seal_text

NO_OFFSET_YET = frozenset((Kind.PRE_MESSAGE, Kind.TIMER))
Row = Mapping[str, Any]


def read_records(source: OpenSplit, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield every record of the split, in order."""
    return in_batches(_rows(source, wants_bodies="bodies" in schema.names), schema)


def _rows(source: OpenSplit, *, wants_bodies: bool) -> Iterator[Row]:
    for append in source.appends():
        for record in append:
            row = row_of(record, append[0].position, source.split.file)
            if wants_bodies and isinstance(record, Run) and record.kind != Kind.REF_MESSAGE:
                row["bodies"] = _bodies(source, record)
            yield row


def in_batches(rows: Iterable[Row], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield `rows` as batches. If getting a row fails, the rows before it come first."""
    waiting: list[Row] = []
    trouble = None
    try:
        for row in rows:
            waiting.append(row)
            if len(waiting) >= ROWS:
                yield batch_of(waiting, schema)
                waiting = []
    except FmqError as error:
        trouble = error
    if waiting:
        yield batch_of(waiting, schema)
    if trouble is not None:
        raise trouble


def batch_of(rows: list[Row], schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows as columns. What a row does not have is null."""
    columns = [pa.array([row.get(field.name) for row in rows], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def row_of(record: Record, append: int, segment: str) -> dict[str, Any]:
    """Return the row of `record`, whose append begins at the position `append`."""
    row = {
        "position": record.position,
        "kind": Kind(record.kind).name,
        "append": append,
        "size": record.size,
        "time": record.time_us,
        "segment": segment,
    }
    row |= SAYS[type(record)](record)
    return row


def _of_run(run: Run) -> dict[str, Any]:
    return {
        "tx": run.tx or None,
        "tx_id": run.tx_id or None,
        "producer": run.producer or None,
        "topic": shown(run.topic),
        "queue": run.queue,
        "offset": None if run.kind in NO_OFFSET_YET else run.offset,
        "messages": run.count,
        "bytes": None if run.kind == Kind.REF_MESSAGE else run.raw_bytes,
        "refers_to": run.body_position or None,
    }


def _of_prepare(prepare: Prepare) -> dict[str, Any]:
    return {
        "tx": prepare.tx,
        "tx_id": prepare.tx_id,
        "producer": prepare.producer or None,
        "messages": prepare.messages,
        "bytes": prepare.bytes,
        "refers_to": prepare.replaces or None,
        "seal": seal_text(prepare.seal),
        "acks": _acks(prepare.acks),
    }


def _of_decided(decided: Decided) -> dict[str, Any]:
    return {
        "tx": decided.tx,
        "tx_id": decided.tx_id,
        "producer": decided.producer or None,
        "messages": decided.messages,
        "bytes": decided.bytes,
        "seal": seal_text(decided.seal),
        "decided_by": decided.decided_by or None,
        "reason": decided.reason or None,
    }


def _of_acks(acks: Acks) -> dict[str, Any]:
    return {"tx": acks.tx or None, "acks": _acks(acks.ranges)}


def _of_tried(tried: Tried) -> dict[str, Any]:
    return {
        "change": json.dumps(
            [each._asdict() | {"topic": shown(each.topic)} for each in tried.ranges]
        )
    }


def _of_marks(marks: Marks) -> dict[str, Any]:
    return {"tx": marks.tx or None}


def _of_change(change: Changed) -> dict[str, Any]:
    said = {"asked": ChangeKind(change.asked).name, "group": change.group, "value": change.value}
    said |= {"places": [*change.places], "text": change.text, "says": change_said(change)}
    return {"topic": shown(change.topic) or None, "change": json.dumps(said)}


def _of_state(state: Carryover) -> dict[str, Any]:
    return {"bytes": len(state.json)}


def _of_ids(kept: IdsKept) -> dict[str, Any]:
    return {"bytes": len(kept.table)}


def _of_topic(made: TopicMade) -> dict[str, Any]:
    return {"topic": shown(made.name)}


SAYS: dict[type, Any] = {
    Run: _of_run,
    Prepare: _of_prepare,
    Decided: _of_decided,
    Acks: _of_acks,
    Tried: _of_tried,
    Marks: _of_marks,
    Changed: _of_change,
    Carryover: _of_state,
    IdsKept: _of_ids,
    TopicMade: _of_topic,
}


def _acks(ranges: tuple[AckRange, ...]) -> str | None:
    names = "group", "topic", "queue", "first", "end"
    said = [
        dict(zip(names, ack.key(), strict=True)) | {"topic": shown(ack.topic)} for ack in ranges
    ]
    return json.dumps(said) if said else None


def _bodies(source: OpenSplit, run: Run) -> list[bytes]:
    data = source.file.read(run.position - source.split.base, run.size)
    return columns_of(data, 0, run).bodies()
