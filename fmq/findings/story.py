"""The story of one transaction: its records, what its checkers answered, and who decided it.

The records are those of the journal. Questions are in no record, so how often one was answered is
what the process that serves the directory has counted since it was opened.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import fmq
from fmq.basics.clock import as_datetime
from fmq.findings.text import counted, duration, place, plain, size
from fmq.machine.disk import Directory
from fmq.recovery.walk import ReadAppend, Walk
from fmq.store.bytes.forms import ACK
from fmq.store.bytes.kinds import Acks, Decided, Kind, Prepare, Record, Run
from fmq.store.journal.scan import end_of


def steps(
    directory: Directory, outcome: fmq.Outcome, undecided: fmq.UndecidedTransaction | None
) -> Iterator[dict[str, Any]]:
    """Yield a row for each record of the transaction, in the order of the journal."""
    last = outcome.position if undecided is None else undecided.position
    if last is None:
        return
    ending = _append_at(directory, last)
    tx = next((number for each in ending if (number := _number(each))), 0)
    appends = {ending[0].position: ending} if ending else {}
    # The first PREPARE is at the position that is the transaction's number. If the transaction was
    # relocated, the references of its COMMIT lead to the copy.
    bodies = [
        each.body_position
        for each in ending
        if isinstance(each, Run) and each.kind == Kind.REF_MESSAGE
    ]
    for position in (tx, *bodies):
        if not any(
            position <= end_of(each) and begin <= position for begin, each in appends.items()
        ):
            found = _append_at(directory, position)
            if found and any(_number(each) == tx for each in found):
                appends[found[0].position] = found
    for _, append in sorted(appends.items()):
        for record in append:
            if (said := _said(record, outcome)) is not None:
                yield {
                    "time": as_datetime(record.time_us),
                    "position": record.position,
                    "kind": Kind(record.kind).name,
                    "text": said,
                }


def _append_at(directory: Directory, position: int) -> ReadAppend:
    """Return the append at `position`; none if retention has dropped it."""
    append = next(iter(Walk(directory, position)), [])
    return append if append and append[0].position <= position < end_of(append) else []


def _number(record: Record) -> int:
    """Return the number of the transaction that a record belongs to, or 0."""
    if isinstance(record, Prepare):
        return record.tx or record.position
    return getattr(record, "tx", 0)


def _said(record: Record, outcome: fmq.Outcome) -> str | None:
    """Return in words what a record does; None for a record that only other records need, such as
    that of a new topic.
    """
    if isinstance(record, Prepare):
        if record.replaces:
            return f"copied to the end of the journal, from position {record.replaces}"
        said = f"{counted(record.messages, 'message')} prepared, {size(record.bytes)}"
        said += f", by {plain(record.producer or 'a producer without a name')}"
        if record.acks:
            said += f"; a commit acks {_acks(record.acks)}"
        return said + "; its producer's database knows how it ended" * bool(record.bound)
    if isinstance(record, Run):
        where = {"topic": record.topic, "queue": record.queue}
        many = counted(record.count, "message")
        if record.kind == Kind.PRE_MESSAGE:
            return f"{many} for {plain(record.topic)}/{record.queue}, which nobody sees yet"
        return f"{many} published at {place(where, record.offset, record.offset + record.count)}"
    if isinstance(record, Decided):
        said = "committed" if record.kind == Kind.COMMIT else "rolled back"
        if outcome.decided_by:
            said += f" by {plain(outcome.decided_by)}"
        waited = (record.time_us - record.prepared_us) / 1e6
        said += f", {duration(waited)} after it was prepared" if waited > 0 else ""
        return said + (f", because: {plain(outcome.reason)}" if outcome.reason else "")
    if isinstance(record, Acks):
        return f"acked {_acks(record.ranges)}"
    return None


def _acks(acks: Any) -> str:
    said = [ACK.say(ack) for ack in acks]
    return ", ".join(
        f"{place(each, each['first'], each['end'])} for {plain(each['group'])}" for each in said
    )


def questions(
    outcome: fmq.Outcome, undecided: fmq.UndecidedTransaction | None, now: datetime
) -> Iterator[dict[str, Any]]:
    """Yield rows about the questions to checkers, of which the journal has no record."""
    count = outcome.asked if undecided is None else undecided.answers
    if count:
        said = f"a checker has answered {counted(count, 'question')} since the engine was opened"
        yield {"text": said if undecided is None else f"{said}: unknown"}
    if undecided is None:
        return
    age = duration((now - undecided.prepared_at).total_seconds())
    said = f"undecided for {age}"
    if undecided.parked:
        said += "; parked: no checker is asked until a person decides or resumes it"
    elif not count:
        said += "; no checker has answered since the engine was opened"
    yield {"time": now, "text": said}
