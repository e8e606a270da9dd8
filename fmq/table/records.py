"""The view `records` of a split: the raw journal, one row for each record.

It also has records that were rolled back or are undecided, and records that a relocation wrote
again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from fmq.basics.clock import as_datetime, as_text
from fmq.errors import Damaged, FmqError
from fmq.store.bytes.change_words import change_said
from fmq.store.bytes.dead_column import Failure, failures_in
from fmq.store.bytes.decoding import columns_of
from fmq.store.bytes.extension import EXPIRED_ACKS
from fmq.store.bytes.forms import ACK, FORMS, MARK, RANGE, TRY
from fmq.store.bytes.internal import shown
from fmq.store.bytes.joint_column import joint_in
from fmq.store.bytes.kinds import (
    AckRange,
    Acks,
    Carryover,
    Changed,
    ChangeKind,
    Decided,
    Erasure,
    Hole,
    IdsKept,
    Joint,
    Kind,
    Marks,
    Prepare,
    Record,
    Run,
    Tried,
)
from fmq.store.bytes.record import BadRecord
from fmq.store.bytes.timing import timing_in
from fmq.store.index.id_table import BadIds, decode_ids
from fmq.table.gather import ROWS
from fmq.table.split import OpenSplit
from fmq.tx.ledger.seal import seal_text

NO_OFFSET_YET = frozenset((Kind.PRE_MESSAGE, Kind.TIMER))
RecordRow = Mapping[str, Any]


def read_records(source: OpenSplit, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield every record of the split, in order."""
    return in_batches(_rows(source, wants_bodies="bodies" in schema.names), schema)


def _rows(source: OpenSplit, *, wants_bodies: bool) -> Iterator[RecordRow]:
    for append in source.appends():
        for record in append:
            try:
                row = row_of(record, append[0].position, source.split.file)
            except (BadRecord, BadIds) as error:  # the extension is bad, or what the bodies contain
                raise Damaged(source.split.file, record.position, str(error)) from None
            if wants_bodies and isinstance(record, Run) and record.kind != Kind.REF_MESSAGE:
                row["bodies"] = _bodies(source, record)
            yield row


def in_batches(rows: Iterable[RecordRow], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield `rows` in batches. If making a row fails, the rows before it are yielded first."""
    waiting: list[RecordRow] = []
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


def batch_of(rows: list[RecordRow], schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows as columns, with null for what a row does not have."""
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
    row |= SAYS.get(type(record), _of_row)(record)
    return row


def _of_run(run: Run) -> dict[str, Any]:
    timing = timing_in(run.extension)
    said: dict[str, Any] = {}
    if timing is not None:
        first = run.position if run.kind == Kind.TIMER else None
        said = {"due": timing.due_us, "timer": timing.number or first}
    if (failures := failures_in(run.extension, run.count)) is not None:
        said["dead"] = json.dumps([_failure(each) for each in failures])
    return said | {
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
        "prepared": prepare.prepared_us,
        "bound": prepare.bound,
        "check_after_ms": None if prepare.check_after_ms < 0 else prepare.check_after_ms,
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
        "prepared": decided.prepared_us,
        "asked": decided.asked,
        "joint": _ending(decided),
    }


def _ending(decided: Decided) -> str | None:
    """Return which ending of a joint decision it is."""
    joint = joint_in(decided.extension)
    if joint is None:
        return None
    said = {"number": joint.joint, "place": joint.place, "transactions": joint.endings}
    return json.dumps(said)


def _of_acks(acks: Acks) -> dict[str, Any]:
    expired = acks.extension == EXPIRED_ACKS
    return {"tx": acks.tx or None, "acks": _acks(acks.ranges), "expired": expired}


def _of_tried(tried: Tried) -> dict[str, Any]:
    return {"attempts": json.dumps([TRY.say(each) for each in tried.ranges], default=as_text)}


def _of_marks(marks: Marks) -> dict[str, Any]:
    said = [MARK.say(each) for each in marks.changes]
    return {"tx": marks.tx or None, "marks": json.dumps(said)}


def _of_change(change: Changed) -> dict[str, Any]:
    said = {"asked": ChangeKind(change.asked).name, "group": change.group, "value": change.value}
    said |= {"places": [*change.places], "text": change.text, "says": change_said(change)}
    row: dict[str, Any] = {"topic": shown(change.topic) or None, "change": json.dumps(said)}
    row["group"] = shown(change.group) or None
    if change.asked in (ChangeKind.FIRE, ChangeKind.RECALL):
        row["ends_timers"] = [place.offset for place in change.places]
    if change.asked == ChangeKind.RECALL:
        row["due"] = change.value
    return row


def _of_state(state: Carryover) -> dict[str, Any]:
    return {"bytes": len(state.json), "carried": state.json.decode(errors="replace")}


def _of_ids(kept: IdsKept) -> dict[str, Any]:
    return {"bytes": len(kept.table), "ids": len(decode_ids(0, kept.table))}


def _of_row(record: Record) -> dict[str, Any]:
    """Return the columns of a kind's row. Some of them are columns of the view."""
    said: dict[str, Any] = FORMS[record.kind].say(record)
    return said


def _of_hole(hole: Hole) -> dict[str, Any]:
    return {"bytes": len(hole.content)}


def _of_erasure(erasure: Erasure) -> dict[str, Any]:
    said = {"number": erasure.number, "segments": [*erasure.segments]}
    return {"erased": json.dumps(said | {"ranges": [RANGE.say(each) for each in erasure.ranges]})}


def _of_joint(joint: Joint) -> dict[str, Any]:
    said = {"decision": Kind(joint.decision).name, "transactions": [*joint.transactions]}
    marks = [MARK.say(each) for each in joint.marks]
    return {"joint": json.dumps(said), "marks": json.dumps(marks) if marks else None}


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
    Hole: _of_hole,
    Erasure: _of_erasure,
    Joint: _of_joint,
}


def _failure(failure: Failure) -> dict[str, Any]:
    origin = failure.origin
    return {
        "number": failure.number,
        "died_at": as_text(as_datetime(failure.time_us)),
        "attempts": failure.attempts,
        "reason": failure.reason,
        "topic": shown(origin.topic),
        "queue": origin.queue,
        "offset": failure.offset,
        "position": origin.position,
        "sent": as_text(as_datetime(origin.time_us)),
        "tx_id": origin.tx_id,
        "producer": origin.producer,
    }


def _acks(ranges: tuple[AckRange, ...]) -> str | None:
    return json.dumps([ACK.say(ack) for ack in ranges]) if ranges else None


def _bodies(source: OpenSplit, run: Run) -> list[bytes]:
    data = source.file.read(run.position - source.split.base, run.size)
    return columns_of(data, 0, run).bodies()
