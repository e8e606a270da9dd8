"""What people have done, as the journal's records say it: changes of groups, topics and schedules,
and decisions about transactions in their producers' place.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

from fmq.basics.clock import as_datetime
from fmq.machine.disk import Directory
from fmq.recovery.walk import Walk
from fmq.store.bytes.change_words import change_said, said_as_json
from fmq.store.bytes.kinds import Changed, ChangeKind, Decided, Kind, Record

# Appends that no person has asked for.
AUTOMATIC = {ChangeKind.TRIM, ChangeKind.BEGIN_DEAD, ChangeKind.FIRE}
CARRIED_FORWARD = 2  # the value of an END_DEAD that retention has written
ENDINGS = {Kind.COMMIT: "committed", Kind.ROLLBACK: "rolled back"}


def actions(directory: Directory, start: int, limit: int) -> list[dict[str, Any]]:
    """Return the last `limit` actions behind position `start`, the newest first. It reads the heads
    of all records from there on.
    """
    found: deque[dict[str, Any]] = deque(maxlen=limit)
    for append in Walk(directory, start):
        for record in append:
            found.extend(_said(record))
    return [*found][::-1]


def _said(record: Record) -> Iterator[dict[str, Any]]:
    row = {"time": as_datetime(record.time_us), "position": record.position}
    if isinstance(record, Changed) and _by_a_person(record):
        kind = ChangeKind(record.asked).name.lower().replace("_", " ")
        yield row | {"what": kind, "topic": record.topic, "text": change_said(record)}
    elif isinstance(record, Decided) and (record.decided_by or record.reason):
        text = f"transaction {record.tx_id} {ENDINGS[Kind(record.kind)]} by {record.decided_by}"
        text += f": {record.reason}" if record.reason else ""
        yield row | {"what": "decide", "topic": "", "text": text}


def _by_a_person(change: Changed) -> bool:
    if change.asked == ChangeKind.END_DEAD:
        return change.value != CARRIED_FORWARD
    if change.asked == ChangeKind.DUE:
        return not said_as_json(change).get("due")
    return change.asked not in AUTOMATIC
