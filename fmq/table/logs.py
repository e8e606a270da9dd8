"""The views `marks`, `acks`, `attempts` and `dead_letters`: one record may give several rows.

Each view is a log in the order of the journal, and what comes last about a thing is what counts.
Before retention drops a segment, it writes the truth in it again. Such rows are `carried`: they
repeat what was so before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa

from fmq.errors import Damaged
from fmq.recovery.walk import ReadAppend
from fmq.store.bytes.dead_column import failures_in
from fmq.store.bytes.decoding import columns_of
from fmq.store.bytes.extension import EXPIRED_ACKS
from fmq.store.bytes.internal import DEAD, INTERNAL, dead_topic, shown
from fmq.store.bytes.kinds import (
    COMMIT,
    Acks,
    Carryover,
    Changed,
    ChangeKind,
    Decided,
    Joint,
    MarkChange,
    Marks,
    Record,
    Run,
    Tried,
)
from fmq.store.bytes.pieces import BadColumns
from fmq.store.bytes.record import BadRecord
from fmq.store.reading.batch import messages_of
from fmq.table.records import RecordRow, in_batches
from fmq.table.split import OpenSplit
from fmq.tx.ledger.carryover import carried_by

EVENTS = {0: "purged", 1: "replayed", 2: "carried"}
"""By the value of END_DEAD, what became of dead letters."""
IN_BODY = frozenset(("body", "key", "tag", "headers", "message_id", "priority", "expires_at"))


def read_log(source: OpenSplit, view: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one of the views above, in the order of the journal."""
    return in_batches(_rows(source, LOGS[view], schema), schema)


def _rows(
    source: OpenSplit, log: Callable[..., Iterator[RecordRow]], schema: pa.Schema
) -> Iterator[RecordRow]:
    columns = frozenset(schema.names)
    for append in source.appends():
        yield from log(source, append, columns)


def _front(record: Record) -> dict[str, Any]:
    return {"position": record.position, "time": record.time_us, "carried": False}


def _carried(source: OpenSplit, state: Carryover, name: str) -> Any:
    """Return the list that a STATE holds under `name`, or an empty one."""
    try:
        return carried_by(state).get(name) or []
    except (ValueError, RecursionError) as error:
        raise Damaged(
            source.split.file, state.position, f"a STATE of an odd shape: {error}"
        ) from None


# --- the views ----------------------------------------------------------------------------------


def _marks(source: OpenSplit, append: ReadAppend, _: frozenset[str]) -> Iterator[RecordRow]:
    last = append[-1]
    for record in append:
        if isinstance(record, Carryover):
            for name, (value, data) in dict(_carried(source, record, "marks")).items():
                said = {"name": shown(name), "value": value, "data": bytes.fromhex(data)}
                yield _front(record) | {"carried": True, "removed": False} | said
        elif isinstance(record, Joint):
            yield from map(partial(_mark, record), record.marks)
        elif isinstance(record, Marks) and isinstance(last, Decided) and last.kind == COMMIT:
            of = {"tx_id": last.tx_id, "producer": last.producer or None}
            for change in record.changes:
                yield _mark(record, change) | of


def _mark(record: Marks | Joint, change: MarkChange) -> dict[str, Any]:
    name, value, marked = change
    removed = marked is None
    said = {"name": shown(name), "value": None if removed else value, "data": marked}
    return _front(record) | said | {"removed": removed}


def _range(group: str, topic: str, queue: int, first: int, end: int) -> dict[str, Any]:
    return {
        "group": shown(group),
        "topic": shown(topic),
        "queue": queue,
        "first": first,
        "end": end,
        "messages": end - first,
    }


def _acks(source: OpenSplit, append: ReadAppend, _: frozenset[str]) -> Iterator[RecordRow]:
    last = append[-1]
    tx_id = last.tx_id if isinstance(last, Decided) else None
    for record in append:
        if isinstance(record, Carryover):
            for group, topic, queue, floor, ranges in _carried(source, record, "acks"):
                for first, end in ([0, floor], *ranges) if floor else ranges:
                    where = _range(group, topic, queue, first, end)
                    yield _front(record) | where | {"carried": True, "expired": False}
        elif isinstance(record, Acks):
            expired = record.extension == EXPIRED_ACKS
            for ack in record.ranges:
                yield _front(record) | _range(*ack.key()) | {"tx_id": tx_id, "expired": expired}


def _attempts(source: OpenSplit, append: ReadAppend, _: frozenset[str]) -> Iterator[RecordRow]:
    for record in append:
        if isinstance(record, Carryover):
            for group, topic, queue, ranges in _carried(source, record, "tried"):
                for first, end, tries, due_us in ranges:
                    said = {"carried": True, "attempts": tries, "due": due_us or None}
                    yield _front(record) | _range(group, topic, queue, first, end) | said
        elif isinstance(record, Tried):
            for tried in record.ranges:
                said = {"attempts": tried.tries, "due": tried.due_us or None}
                yield _front(record) | _range(*tried[:5]) | said


def _dead_letters(
    source: OpenSplit, append: ReadAppend, columns: frozenset[str]
) -> Iterator[RecordRow]:
    for record in append:
        if isinstance(record, Run) and record.topic.startswith(f"{INTERNAL}{DEAD}{INTERNAL}"):
            yield from _died(source, record, _group_of(record.topic, append), columns)
        elif isinstance(record, Changed) and record.asked == ChangeKind.DELETE_GROUP:
            yield _front(record) | {"event": "deleted", "group": shown(record.group)}
        elif isinstance(record, Changed) and record.asked == ChangeKind.END_DEAD:
            ended = _front(record) | {"event": EVENTS[record.value], "group": shown(record.group)}
            bounds = [place.offset for place in record.places]
            for first, end in zip(bounds[::3], bounds[1::3], strict=True):
                for place in range(first, end):
                    yield ended | {"place": place}


def _died(
    source: OpenSplit, run: Run, group: str | None, columns: frozenset[str]
) -> Iterator[RecordRow]:
    """Yield a row for each dead letter in `run`."""
    try:
        failures = failures_in(run.extension, run.count)
        if failures is None:
            raise BadRecord("dead letters that do not say where they failed")
        messages = None
        if not IN_BODY.isdisjoint(columns):
            data = source.file.read(run.position - source.split.base, run.size)
            stored = columns_of(data, 0, run)
            messages = messages_of(stored, stored.bodies(), failures[0].origin, 0, 0)
    except (BadRecord, BadColumns) as error:
        raise Damaged(source.split.file, run.position, str(error)) from None
    for count, failure in enumerate(failures):
        place, origin = run.offset + count, failure.origin
        row = _front(run) | {
            "event": "dead",
            "group": group,
            "place": place,
            "number": place if failure.number is None else failure.number,
            "carried": failure.number is not None,
            "died_at": failure.time_us,
            "attempts": failure.attempts,
            "reason": failure.reason,
            "topic": shown(origin.topic),
            "queue": origin.queue,
            "offset": failure.offset,
            "sent": origin.time_us,
            "sent_position": origin.position,
            "tx_id": origin.tx_id,
            "producer": origin.producer,
        }
        if messages is not None:
            row |= {name: getattr(messages[count], name) for name in IN_BODY}
        yield row


def _group_of(topic: str, append: ReadAppend) -> str | None:
    """Return the group whose dead letters `topic` holds, as `append` states it."""
    groups = [ack.group for record in append if isinstance(record, Acks) for ack in record.ranges]
    groups += [record.group for record in append if isinstance(record, Changed)]
    found = next((group for group in groups if dead_topic(group) == topic), None)
    return None if found is None else shown(found)


LOGS: dict[str, Callable[[OpenSplit, ReadAppend, frozenset[str]], Iterator[RecordRow]]] = {
    "marks": _marks,
    "acks": _acks,
    "attempts": _attempts,
    "dead_letters": _dead_letters,
}
