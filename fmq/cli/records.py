"""`fmq records`: print the raw journal, one line for each record, rolled back and undecided ones
included.

It reads files and nothing else, so it works beside a live engine, and of a damaged journal it
shows what lies before the damage.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from itertools import islice
from typing import Any

import fmq
from fmq.basics.clock import as_datetime
from fmq.cli.arguments import count, text
from fmq.cli.codes import FINE, PROBLEM
from fmq.cli.output import Column, Output, Row, note
from fmq.findings.text import exact, place, plain, printable
from fmq.findings.visit import visit
from fmq.recovery.walk import ReadAppend, Walk
from fmq.store.bytes.change_words import change_said
from fmq.store.bytes.columns import COMPRESSED, HEADERS, KEYS, LENGTHS, TAGS
from fmq.store.bytes.forms import ACK, FORMS
from fmq.store.bytes.internal import shown
from fmq.store.bytes.kinds import (
    Changed,
    ChangeKind,
    Decided,
    IdsKept,
    Joint,
    Kind,
    Prepare,
    Record,
    Run,
)
from fmq.store.bytes.record import BOUND, EXTENDED, FIRST, LAST
from fmq.store.bytes.timing import timing_in
from fmq.store.index.id_table import decode_ids

FLAGS = {
    FIRST: "first",
    LAST: "last",
    COMPRESSED: "lz4",
    LENGTHS: "lengths",
    KEYS: "keys",
    TAGS: "tags",
    HEADERS: "headers",
    EXTENDED: "extended",
}
SHOWN_OTHERWISE = {"first", "last", "lengths"}


def add_to(verbs: Any, common: argparse.ArgumentParser) -> None:
    parser = verbs.add_parser(
        "records", parents=[common], help="the raw journal, a line per record", description=__doc__
    )
    parser.add_argument("dir", metavar="DIR")
    parser.add_argument(
        "--from", dest="start", type=count, default=0, metavar="POSITION", help="begin there"
    )
    parser.add_argument("--limit", type=count, metavar="N", help="stop after so many lines")
    parser.add_argument(
        "--kind",
        type=str.upper,
        choices=[kind.name for kind in Kind],
        metavar="KIND",
        help="only this kind",
    )
    parser.add_argument("--topic", type=text, help="only what speaks of this topic")
    parser.add_argument(
        "--tx", type=text, metavar="ID", help="only what belongs to this transaction"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace, output: Output) -> int:
    with visit(args.dir) as directory:
        walk = Walk(directory, args.start)
        rows = _wanted(args, _rows(walk, args.start, Fates(args.dir)))
        shown = output.rows("record", COLUMNS, islice(rows, args.limit), empty="no such records")
        if args.limit is not None and shown == args.limit:
            return FINE
        if walk.damage is not None:
            note(f"stopped: {walk.damage}")
            return PROBLEM
        if walk.unfinished is not None:
            note(
                f"position {walk.position}: here an append is being written, or a crash left it "
                f"unfinished ({walk.unfinished}); nothing proves it durable, and recovery cuts it."
            )
    return FINE


class Fates:
    """What became of prepared transactions. Each is looked up once, at its first record."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._engine: fmq.ReadOnlyEngine | None = None
        self._known: dict[int, str] = {}

    def of(self, prepare: Prepare) -> str:
        """Return the fate of a transaction as a word; "" if it cannot be known, for example because
        of damage.
        """
        if prepare.tx not in self._known:
            self._known[prepare.tx] = self._look_up(prepare)
        return self._known[prepare.tx]

    def _look_up(self, prepare: Prepare) -> str:
        # Show the records of a damaged journal, too.
        with suppress(fmq.FmqError, OSError):
            if self._engine is None:
                self._engine = fmq.open(self._path, read_only=True)
            if prepare.position >= self._engine.visible_to:
                return "not vouched for yet"
            outcome = self._engine.outcome(prepare.tx_id)
            # Another transaction may have used the id since.
            if outcome.seal == prepare.seal.hex():
                return outcome.state
        return ""

    def close(self) -> None:
        if self._engine is not None:
            self._engine.close()


def _rows(walk: Walk, start: int, fates: Fates) -> Iterator[Row]:
    try:
        for append in walk:
            ids = {record.tx: record.tx_id for record in append if isinstance(record, Prepare)}
            ids |= {record.tx: record.tx_id for record in append if isinstance(record, Decided)}
            fate = _fate_of(append, fates)
            for record in append:
                if record.position >= start:
                    yield row_of(record, ids, fate)
    finally:
        fates.close()


def _fate_of(append: ReadAppend, fates: Fates) -> str:
    """Return the fate of the transaction that `append` prepares; "" if it prepares none."""
    last = append[-1]
    if isinstance(last, Decided):
        return ""  # the record itself names its queue
    prepare = next((record for record in append if isinstance(record, Prepare)), None)
    return fates.of(prepare) if prepare is not None else ""


def _wanted(args: argparse.Namespace, rows: Iterator[Row]) -> Iterator[Row]:
    for row in rows:
        if args.kind and row["kind"] != args.kind:
            continue
        if args.tx and row.get("tx_id") != args.tx:
            continue
        if args.topic and args.topic not in _topics(row):
            continue
        yield row


def _topics(row: Row) -> set[str]:
    return (
        {row["topic"]}
        if row.get("topic")
        else {ack["topic"] for ack in (*row.get("acks", ()), *row.get("tries", ()))}
    )


def row_of(record: Record, ids: dict[int, str], fate: str) -> Row:
    """Return all fields of a record except for its bodies."""
    kind = Kind(record.kind)
    row: dict[str, Any] = {"position": record.position, "kind": kind.name, "size": record.size}
    tx = getattr(record, "tx", 0)
    if isinstance(record, Prepare):
        tx = tx or record.position
    if tx:
        row |= {"tx": tx, "tx_id": getattr(record, "tx_id", "") or ids.get(tx)}
    row |= _own(record)
    if fate and kind in (Kind.PREPARE, Kind.PRE_MESSAGE):
        row["fate"] = fate
    flags = [name for flag, name in FLAGS.items() if record.flags & flag]
    if isinstance(record, Prepare):
        flags = [name for name in flags if name != FLAGS[BOUND]] + ["bound"] * record.bound
    return row | {"time": as_datetime(record.time_us), "flags": flags}


def _own(record: Record) -> dict[str, Any]:
    """Return the fields that only records of this kind have."""
    if isinstance(record, Run):
        # A body that is prepared or delayed has no place in its queue yet.
        has_none = record.kind in (Kind.PRE_MESSAGE, Kind.TIMER)
        offset = None if has_none else record.offset
        own: dict[str, Any] = {
            "topic": shown(record.topic),
            "queue": record.queue,
            "offset": offset,
        }
        own |= {"count": record.count}
        if record.kind == Kind.REF_MESSAGE:
            return own | {"body_position": record.body_position}
        own |= {"bytes": record.raw_bytes, "producer": record.producer or None}
        if (timing := timing_in(record.extension)) is not None:
            own |= {"due": as_datetime(timing.due_us), "timer": timing.number or None}
        return own
    if isinstance(record, Prepare):
        own = {"count": record.messages, "bytes": record.bytes, "producer": record.producer or None}
        own |= {"records": record.records, "seal": record.seal.hex()}
        own |= {"replaces": record.replaces or None, "prepared": as_datetime(record.prepared_us)}
        return own | {"acks": [ACK.say(ack) for ack in record.acks]}
    if isinstance(record, Decided):
        own = {"count": record.messages, "bytes": record.bytes, "producer": record.producer or None}
        own |= {"records": record.records, "seal": record.seal.hex()}
        own |= {"decided_by": record.decided_by or None, "reason": record.reason or None}
        return own | {"prepared": as_datetime(record.prepared_us)}
    own = FORMS[record.kind].say(record)
    if isinstance(record, Changed):
        own |= {"asked": ChangeKind(record.asked).name, "says": change_said(record)}
    elif isinstance(record, Joint):
        own["decision"] = Kind(record.decision).name
    elif isinstance(record, IdsKept):
        own["count"] = len(decode_ids(0, record.table))
    return own


# --- as people read it ---------------------------------------------------------------------------


def _place(row: Row) -> str:
    """Return `topic/queue/offset`, as far as they are known."""
    if row.get("offset") is not None:
        return place(row, row["offset"], row["offset"] + row["count"])
    if row.get("topic"):
        return printable(row["topic"]) + (f"/{row['queue']}" if "queue" in row else "")
    for what in ("acks", "tries"):
        ranges = row.get(what, ())
        if len(ranges) == 1:
            return place(ranges[0], ranges[0]["first"], ranges[0]["end"])
        if ranges:
            return f"{len(ranges)} {what}"
    return ""


def _remark(row: Row) -> str:
    flags = [flag for flag in row["flags"] if flag not in SHOWN_OTHERWISE]
    remarks = [row.get("fate"), *flags]
    # Name the producer of a transaction only at its PREPARE.
    if row.get("producer") and row["kind"] in (Kind.MESSAGE.name, Kind.PREPARE.name):
        remarks.append(f"from {row['producer']}")
    if row["kind"] == Kind.ACK.name or row.get("acks"):
        remarks.append("by " + ", ".join(sorted({ack["group"] for ack in row["acks"]})))
    for each in row.get("tries", ()):
        due = f", due {_short_moment(each['due'])}" if each["due"] else ""
        remarks.append(f"attempt {each['tries']} of {each['group']}{due}")
    remarks.append(row.get("says"))
    if row.get("body_position") is not None:
        remarks.append(f"body at {row['body_position']}")
    if row.get("replaces"):
        remarks.append(f"replaces {row['replaces']}")
    if row.get("queues"):
        remarks.append(f"{row['queues']} queues" if row["queues"] > 1 else "1 queue")
    if row.get("decided_by"):
        remarks.append(f"by {row['decided_by']}")
    if row.get("reason"):
        remarks.append(f"because: {row['reason']}")
    return ", ".join(plain(remark) for remark in remarks if remark)


def _short_moment(time: datetime) -> str:
    """Return the time to the second and without the year, which most lines have in common. JSON has
    all of it.
    """
    return f"{time:%m-%d %H:%M:%S}"


def _bracket(row: Row) -> str:
    """Return the part of a bracket that joins the records of one append."""
    first, last = "first" in row["flags"], "last" in row["flags"]
    return {(True, True): "─", (True, False): "┌", (False, True): "└"}.get((first, last), "│")


COLUMNS = (
    Column("", "", of_row=_bracket, style="dim"),
    Column("position", "position", right=True, show=exact),
    Column("kind", "kind", style="cyan"),
    Column("size", "bytes", right=True, optional=True),
    Column("tx_id", "transaction", copied=True),
    Column("", "queue/offset", of_row=_place, copied=True),
    Column("count", "count", right=True),
    Column("time", "time (UTC)", show=_short_moment, style="dim"),
    Column("", "remarks", of_row=_remark, folds=True),
)
