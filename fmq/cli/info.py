"""`fmq info`: show what a directory holds, without opening it for writing."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, TypeVar

import fmq
from fmq.cli.codes import FINE, PROBLEM
from fmq.cli.output import Column, Output, Row, note
from fmq.cli.place import asked, sizes_of
from fmq.cli.tx import UNDECIDED, undecided_row
from fmq.findings.text import counted, exact, plain, size
from fmq.findings.visit import visit, writer_of
from fmq.machine.disk import Directory
from fmq.recovery import checkpoint as checkpoints
from fmq.recovery.checkpoint import Checkpoint
from fmq.recovery.layout import Layout, known_segments, look, read_header
from fmq.recovery.walk import ATTEMPTS, Walk
from fmq.store.journal.scan import end_of
from fmq.store.journal.segment import Segment, segment_name

SEGMENTS_SHOWN = 10
T = TypeVar("T")


def add_to(verbs: Any, common: argparse.ArgumentParser) -> None:
    parser = verbs.add_parser(
        "info", parents=[common], help="segments, queues, groups, sizes", description=__doc__
    )
    parser.add_argument("dir", metavar="DIR")
    parser.add_argument("--all", action="store_true", help="every segment, however many")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace, output: Output) -> int:
    with (
        visit(args.dir) as directory,
        fmq.open(args.dir, read_only=True) as engine,
        asked(args.dir, engine) as newest,
    ):
        bases = look(directory).bases
        store = read_header(directory, bases[-1]).store
        checkpoint = checkpoints.read(directory, store)
        queues = _unless_hidden(newest.queues)
        walk = Walk(directory, engine.visible_to)
        end = max([engine.visible_to, *map(end_of, walk)])
        about = {
            "path": args.dir,
            "store": store.hex(),
            "writer": writer_of(directory),
            "served": newest is not engine,
            "closed": bool(checkpoint and checkpoint.clean and checkpoint.applied_upto == end),
            "first_position": bases[0],
            "visible_to": engine.visible_to,
            "not_vouched_bytes": end - engine.visible_to,
            "segments": len(bases),
            "topics": len({queue.topic for queue in queues}),
            "messages": sum(queue.next - queue.first for queue in queues),
            "sizes": sizes_of(args.dir),
            "checkpoint": _checkpoint(checkpoint),
        }
        output.facts("directory", about, ABOUT, title=args.dir)
        segments = _segments(directory, engine.visible_to)
        shown = segments if args.all else segments[-SEGMENTS_SHOWN:]
        output.rows("segment", SEGMENTS, shown, title="segments")
        if len(shown) < len(segments):
            note(f"the newest {len(shown)} of {len(segments)} segments; --all shows every one")
        output.rows("queue", QUEUES, map(_queue, queues), title="queues", empty="none yet")
        if groups := _unless_hidden(newest.groups):
            output.rows("group", GROUPS, map(asdict, groups), title="groups")
        if undecided := _unless_hidden(newest.undecided):
            output.rows("undecided", UNDECIDED, map(undecided_row, undecided), title="undecided")
        return _end(engine, walk)


def _unless_hidden(look: Callable[[], list[T]]) -> list[T]:
    """Return what `look` returns. If damage prevents it, return an empty list; the note at the end
    mentions the damage.
    """
    try:
        return look()
    except fmq.errors.Damaged:
        return []


def _end(engine: fmq.ReadOnlyEngine, walk: Walk) -> int:
    damage = engine.damage or walk.damage
    if damage is None:
        return FINE
    note(f"only what lies before the damage is shown: {damage}")
    return PROBLEM


def _queue(queue: fmq.QueueInfo) -> Row:
    return asdict(queue) | {"messages": queue.next - queue.first}


def _checkpoint(checkpoint: Checkpoint | None) -> Row | None:
    if checkpoint is None:
        return None
    names = ("generation", "applied_upto", "scan_from", "clean")
    return {name: getattr(checkpoint, name) for name in names}


def _segments(directory: Directory, visible_to: int) -> Sequence[Row]:
    """Return a row for each segment. If retention drops a segment meanwhile, begin again."""
    for attempt in range(ATTEMPTS):
        layout = look(directory)
        try:
            segments = known_segments(directory, layout, None)
        except FileNotFoundError:
            if attempt == ATTEMPTS - 1:
                raise
        else:
            break
    segments[-1].end = max(visible_to, segments[-1].end)
    return [_segment(segment, layout, segment is not segments[-1]) for segment in segments]


def _segment(segment: Segment, layout: Layout, sealed: bool) -> Row:
    return {
        "file": segment.name,
        "base": segment.base,
        "end": segment.end,
        "bytes": segment.end - segment.base,
        "capacity": segment.capacity,
        "sealed": sealed,
        "indexed": segment_name(segment.base, ".idx") in layout.names,
    }


# --- as people read it ---------------------------------------------------------------------------


def _state(row: Row) -> str:
    if row["writer"]:
        text = f"open for writing by {plain(row['writer'])}"
        return f"{text}, which serves others" if row["served"] else text
    return "closed" if row["closed"] else "not closed: the next to open it will recover"


def _journal(row: Row) -> str:
    text = f"positions {row['first_position']} to {row['visible_to']}"
    if row["not_vouched_bytes"]:
        text += f", and {size(row['not_vouched_bytes'])} that may not be durable yet"
    return text


def _saved(row: Row) -> str:
    saved = row["checkpoint"]
    if saved is None:
        return "none yet: recovery begins at the first segment"
    text = f"position {saved['applied_upto']}"
    if saved["scan_from"] != saved["applied_upto"]:
        text += f", undecided transactions from {saved['scan_from']} on"
    return text


ABOUT = (
    Column("", "state", of_row=_state),
    Column("", "journal", of_row=_journal),
    Column("", "checkpoint", of_row=_saved),
    Column(
        "",
        "messages",
        of_row=lambda row: f"{row['messages']:,} in {counted(row['topics'], 'topic')}",
    ),
    Column(
        "",
        "on disk",
        of_row=lambda row: ", ".join(
            f"{sort} {size(count)}" for sort, count in row["sizes"].items() if count
        ),
    ),
    Column("store", "store", style="dim"),
)
SEGMENTS = (
    Column("file", "file"),
    Column("base", "from", right=True, show=exact),
    Column("end", "to", right=True, show=exact),
    Column("bytes", "data", right=True, show=size),
    Column("capacity", "room", right=True, show=size),
    Column("", "state", of_row=lambda row: "sealed" if row["sealed"] else "the last", style="dim"),
    Column("", "index", of_row=lambda row: "yes" if row["indexed"] else "", style="dim"),
)
QUEUES = (
    Column("topic", "topic", style="cyan", copied=True),
    Column("queue", "queue", right=True, show=exact),
    Column("first", "first", right=True, show=exact),
    Column("next", "next", right=True, show=exact),
    Column("messages", "messages", right=True),
)
GROUPS = (
    Column("group", "group", style="cyan", copied=True),
    Column("", "queue", of_row=lambda row: f"{plain(row['topic'])}/{row['queue']}", copied=True),
    Column("acked_below", "acked below", right=True, show=exact),
    Column("acked_beyond", "acked beyond", right=True),
    Column("unread", "unread", right=True),
    Column("replayed", "replayed", right=True, optional=True),
    Column("dead_letters", "dead", right=True, optional=True),
    Column("filter", "filter", optional=True, folds=True),
)
