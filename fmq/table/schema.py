"""The views of a journal, and the columns of each with their Arrow types.

    messages      what consumers get: one row a message, committed ones only
    records       the raw journal: one row a record, also what was rolled back or is undecided
    transactions  one row a transaction, from its prepare to its decision
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
        "seal": pa.string(),
        "decided_by": pa.string(),
        "reason": pa.string(),
        "acks": pa.string(),
        "change": pa.string(),
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
    },
    "damage": {
        "segment": pa.string(),
        "position": pa.int64(),
        "skipped_bytes": pa.int64(),
        "reason": pa.string(),
        "path": pa.string(),
    },
}
FLEET = {"engine": pa.string(), "host": pa.string(), "store": pa.string()}


def schema_of(view: str, columns: Sequence[str] | None, *, fleet: bool) -> pa.Schema:
    """Return the schema of `columns` of `view`, or of all that it has by itself; raise
    BadOption.
    """
    check_choice("view", view, VIEWS)
    known = VIEWS[view] | FLEET
    if columns is None:
        columns = list(known if fleet else VIEWS[view])
    for column in columns:
        check_choice(f"column of {view}", column, known)
    return pa.schema([pa.field(column, known[column]) for column in columns])


def check_choice(what: str, given: str, known: Collection[str]) -> None:
    """Raise BadOption, with the likely meaning, unless `given` is one of `known`."""
    if given in known:
        return
    near = get_close_matches(given, list(known), n=3, cutoff=0.5)
    meant = f"; did you mean {' or '.join(near)}?" if near else "."
    raise BadOption(
        f"there is no {what} {given!r}{meant} There are: {', '.join(known)}. Nothing was read."
    )
