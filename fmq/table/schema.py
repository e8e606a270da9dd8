"""The views of a journal, and the columns of each with their Arrow types.

    messages      what consumers get: one row a message, committed ones only
    records       the raw journal: one row a record, also what was rolled back or is undecided
    transactions  one row a transaction, from its prepare to its decision
    marks         what transactions have set, one row a mark
    acks          what groups have acked, one row a range of messages
    attempts      what groups have tried, one row a range of messages
    dead_letters  what became a dead letter, and what became of it, one row each
    damage        what reading has to leave out, if anything

Engine, host and store tell the rows of many directories apart; they are columns of every view,
and part of the default ones when more than one directory is read.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from difflib import get_close_matches

import pyarrow as pa

from fmq.errors import BadOption

TIME = pa.timestamp("us", tz="UTC")
HEADERS = pa.map_(pa.string(), pa.string())
RUN = pa.struct(
    [
        ("topic", pa.string()),
        ("queue", pa.int32()),
        ("offset", pa.int64()),
        ("messages", pa.int64()),
    ]
)
RANGE = {
    "group": pa.string(),
    "topic": pa.string(),
    "queue": pa.int32(),
    "first": pa.int64(),
    "end": pa.int64(),
    "messages": pa.int64(),
}
"""Messages of one queue that a group is about: from `first` up to, not including, `end`."""

VIEWS: dict[str, dict[str, pa.DataType]] = {
    "messages": {
        "topic": pa.string(),
        "queue": pa.int32(),
        "offset": pa.int64(),
        "position": pa.int64(),
        "key": pa.string(),
        "tag": pa.string(),
        "headers": HEADERS,
        "body": pa.binary(),
        "time": TIME,
        "tx_id": pa.string(),
        "producer": pa.string(),
        "message_id": pa.string(),
        "priority": pa.int32(),
        "expires_at": TIME,
        "delayed": pa.bool_(),
    },
    "records": {
        "position": pa.int64(),
        "kind": pa.string(),
        "append": pa.int64(),
        "size": pa.int64(),
        "time": TIME,
        "tx": pa.int64(),
        "tx_id": pa.string(),
        "producer": pa.string(),
        "topic": pa.string(),
        "queue": pa.int32(),
        "offset": pa.int64(),
        "messages": pa.int64(),
        "bytes": pa.int64(),
        "refers_to": pa.int64(),
        "due": TIME,
        "timer": pa.int64(),
        "ends_timers": pa.list_(pa.int64()),
        "group": pa.string(),
        "queues": pa.int32(),
        "prepared": TIME,
        "bound": pa.bool_(),
        "check_after_ms": pa.int64(),
        "seal": pa.string(),
        "decided_by": pa.string(),
        "reason": pa.string(),
        "asked": pa.int32(),
        "acks": pa.string(),
        "expired": pa.bool_(),
        "attempts": pa.string(),
        "dead": pa.string(),
        "marks": pa.string(),
        "erased": pa.string(),
        "joint": pa.string(),
        "change": pa.string(),
        "carried": pa.string(),
        "ids": pa.int64(),
        "bodies": pa.list_(pa.binary()),
        "segment": pa.string(),
    },
    "transactions": {
        "tx_id": pa.string(),
        "state": pa.string(),
        "producer": pa.string(),
        "prepared": TIME,
        "decided": TIME,
        "duration_us": pa.int64(),
        "decided_by": pa.string(),
        "reason": pa.string(),
        "messages": pa.int64(),
        "bytes": pa.int64(),
        "queues": pa.list_(RUN),
        "delayed": pa.int64(),
        "asked": pa.int32(),
        "position": pa.int64(),
        "seal": pa.string(),
        "joint": pa.int64(),
    },
    "marks": {
        "position": pa.int64(),
        "time": TIME,
        "name": pa.string(),
        "value": pa.decimal128(20, 0),
        "data": pa.binary(),
        "removed": pa.bool_(),
        "tx_id": pa.string(),
        "producer": pa.string(),
        "carried": pa.bool_(),
    },
    "acks": {
        "position": pa.int64(),
        "time": TIME,
        **RANGE,
        "tx_id": pa.string(),
        "expired": pa.bool_(),
        "carried": pa.bool_(),
    },
    "attempts": {
        "position": pa.int64(),
        "time": TIME,
        **RANGE,
        "attempts": pa.int64(),
        "due": TIME,
        "carried": pa.bool_(),
    },
    "dead_letters": {
        "position": pa.int64(),
        "time": TIME,
        "event": pa.string(),
        "group": pa.string(),
        "place": pa.int64(),
        "number": pa.int64(),
        "died_at": TIME,
        "attempts": pa.int64(),
        "reason": pa.string(),
        "topic": pa.string(),
        "queue": pa.int32(),
        "offset": pa.int64(),
        "sent": TIME,
        "sent_position": pa.int64(),
        "key": pa.string(),
        "tag": pa.string(),
        "headers": HEADERS,
        "body": pa.binary(),
        "tx_id": pa.string(),
        "producer": pa.string(),
        "message_id": pa.string(),
        "priority": pa.int32(),
        "expires_at": TIME,
        "carried": pa.bool_(),
    },
    "damage": {
        "segment": pa.string(),
        "position": pa.int64(),
        "skipped_bytes": pa.int64(),
        "reason": pa.string(),
        "path": pa.string(),
    },
}
VALUE = "value"
"""A column of messages that is only there by name, because its type depends on their topic."""
FLEET = {"engine": pa.string(), "host": pa.string(), "store": pa.string()}


def names_value(view: str, columns: Collection[str] | None) -> bool:
    """Return whether `columns` names the column `value` of messages. That of marks is another."""
    return view == "messages" and VALUE in (columns or ())


def schema_of(
    view: str, columns: Sequence[str] | None, *, fleet: bool, value: pa.DataType | None = None
) -> pa.Schema:
    """Return the schema of `columns`; by default, of all that the view itself has. `value` is the
    type of the column `value` of messages, if it is among them. Raises BadOption.
    """
    check_choice("view", view, VIEWS)
    known = VIEWS[view] | FLEET
    if value is not None:
        known |= {VALUE: value}
    if columns is None:
        columns = list(known if fleet else VIEWS[view])
    for column in columns:
        check_choice(f"column of {view}", column, known)
    return pa.schema([pa.field(column, known[column]) for column in columns])


def check_choice(what: str, given: str, known: Collection[str]) -> None:
    """Raise BadOption, which suggests the nearest name, unless `given` is one of `known`."""
    if given in known:
        return
    near = get_close_matches(given, list(known), n=3, cutoff=0.5)
    meant = f"; did you mean {' or '.join(near)}?" if near else "."
    raise BadOption(
        f"there is no {what} {given!r}{meant} There are: {', '.join(known)}. Nothing was read."
    )
