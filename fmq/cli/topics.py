"""`fmq topics`: each topic, its codec, what it holds, who reads it, and how long it is kept.

The size of a topic is in no index: `--bytes` reads the journal to count it.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime
from typing import Any

import fmq
from fmq.cli.codes import FINE
from fmq.cli.output import Column, Output, Row
from fmq.cli.place import asked, sizes_of
from fmq.engines.read_only_engine import retained_seconds
from fmq.findings.text import duration, size
from fmq.findings.visit import visit
from fmq.recovery.walk import Walk
from fmq.store.bytes.kinds import Kind, Run
from fmq.store.journal.scan import end_of

VISIBLE = (Kind.MESSAGE, Kind.REF_MESSAGE, Kind.TX_MESSAGE)
Engine = fmq.ReadOnlyEngine | fmq.RemoteEngine


def add_to(verbs: Any, common: argparse.ArgumentParser) -> None:
    parser = verbs.add_parser(
        "topics",
        parents=[common],
        help="what each topic holds, and who reads it",
        description=__doc__,
    )
    parser.add_argument("dir", metavar="DIR")
    parser.add_argument("--bytes", action="store_true", help="and the bytes of its records")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace, output: Output) -> int:
    with (
        visit(args.dir),
        fmq.open(args.dir, read_only=True) as reader,
        asked(args.dir, reader) as engine,
    ):
        bytes_of = _bytes(args.dir, output) if args.bytes else None
        retained = retained_seconds(reader)
        rows = [*_topics(engine, retained, bytes_of)]
        stats = engine.stats()
        kept = {
            "bytes": stats.position - stats.first_position,
            "segments": stats.segments,
            "oldest": min((row["first_time"] for row in rows if row["first_time"]), default=None),
        }
    shown = {"bytes": args.bytes, "codec": any(row["codec"] for row in rows)}
    columns = [column for column in TOPICS if shown.get(column.key, True)]
    output.rows("topic", columns, rows, empty="there is no topic")
    output.facts("journal", kept, JOURNAL, title="all topics together")
    return FINE


def _topics(
    engine: Engine, retained: dict[str, float], bytes_of: Counter[str] | None
) -> Iterator[Row]:
    queues: dict[str, list[fmq.QueueInfo]] = {}
    for queue in engine.queues():
        queues.setdefault(queue.topic, []).append(queue)
    groups: dict[str, Counter[str]] = {}
    for info in engine.groups():
        groups.setdefault(info.topic, Counter())[info.group] += info.unread
    for topic, found in queues.items():
        row: dict[str, Any] = {
            "topic": topic,
            "queues": len(found),
            "codec": None if (codec := engine.topic(topic).codec()) is None else asdict(codec),
            "messages": sum(each.next - each.first for each in found),
            "bytes": None if bytes_of is None else bytes_of[topic],
            "first_time": min(_times(engine, found, first=True), default=None),
            "last_time": max(_times(engine, found, first=False), default=None),
            "groups": [
                {"group": group, "unread": unread}
                for group, unread in groups.get(topic, {}).items()
            ],
            "retain_seconds": retained.get(topic, engine.options.retain_seconds),
            "retain_bytes": engine.options.retain_bytes,
            "retain_acked_bytes": engine.options.retain_acked_bytes,
        }
        yield row


def _times(engine: Engine, queues: list[fmq.QueueInfo], *, first: bool) -> Iterator[datetime]:
    """Yield when the first or the last message of each queue was sent."""
    for queue in queues:
        offset = queue.first if first else queue.next - 1
        if queue.first == queue.next:
            continue
        try:
            found = engine.read(queue.topic, queue=queue.queue, offset=offset, limit=1)
        except (fmq.errors.OffsetGone, fmq.errors.Damaged):
            # Retention has dropped the message, or it is damaged, which `fmq verify` reports.
            continue
        if found and (time := found[0].time) is not None:
            yield time


def _bytes(path: str, output: Output) -> Counter[str]:
    """Return the bytes of the records with the messages of each topic."""
    found: Counter[str] = Counter()
    with visit(path) as directory, output.progress() as show:
        walk = Walk(directory)
        total = sizes_of(path)["segments"]
        begin = None
        for append in walk:
            for record in append:
                if isinstance(record, Run) and record.kind in VISIBLE:
                    found[record.topic] += record.size
            begin = append[0].position if begin is None else begin
            done = end_of(append) - begin
            show({"bytes": done, "bytes_total": max(total, done)})
    return found


def _groups(row: Row) -> str:
    said = [f"{each['group']} ({each['unread']:,} unread)" for each in row["groups"]]
    return ", ".join(said) or "nobody"


def _codec(row: Row) -> str:
    codec = row["codec"]
    if codec is None:
        return ""
    fields = ", ".join(f"{name} {kinds}" for name, kinds in (codec["fields"] or {}).items())
    return f"{codec['name']} {codec['version']}" + (f": {fields}" if fields else "")


def _kept(row: Row) -> str:
    limits = [
        "" if row["retain_seconds"] is None else duration(row["retain_seconds"]),
        "" if row["retain_bytes"] is None else f"{size(row['retain_bytes'])} of journal",
    ]
    if not any(limits) and row["groups"] and row["retain_acked_bytes"] is not None:
        return "until acked"
    return ", ".join(filter(None, limits)) or "for ever"


JOURNAL = (
    Column("bytes", "journal", show=size),
    Column("segments", "segments"),
    Column("oldest", "oldest message (UTC)"),
)
TOPICS = (
    Column("topic", "topic", style="bold", copied=True),
    Column("queues", "queues", right=True),
    Column("codec", "codec", of_row=_codec, folds=True),
    Column("messages", "messages", right=True),
    Column("bytes", "size", right=True, show=size),
    Column("first_time", "oldest (UTC)"),
    Column("last_time", "newest (UTC)", optional=True),
    Column("", "read by", of_row=_groups, folds=True),
    Column("", "kept", of_row=_kept, optional=True),
)
