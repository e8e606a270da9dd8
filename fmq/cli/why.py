"""`fmq why`: what is stuck, why, since when, who holds it, and which command frees it.

With GROUP it says all about one group, else a line about each group, and about what else needs a
person. The exit code is 1 if something does. It asks the process that serves the directory; if none
does, it says what the journal says, and that is no lease and no member. It changes nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import fmq
from fmq.cli.arguments import seconds, text
from fmq.cli.codes import FINE, PROBLEM
from fmq.cli.output import Column, Output, Row
from fmq.cli.place import reading, visit, writer_of
from fmq.cli.text import counted, duration
from fmq.cli.verdict import PATIENCE_SECONDS, PROBLEMS, Seen, remarks, worst

HELD_MAX = 10_000  # how many ranges of a group are looked at
Engine = fmq.ReadOnlyEngine | fmq.RemoteEngine


def add_to(verbs: Any, common: argparse.ArgumentParser) -> None:
    parser = verbs.add_parser(
        "why", parents=[common], help="what is stuck, and what frees it", description=__doc__
    )
    parser.add_argument("dir", metavar="DIR")
    parser.add_argument(
        "group", type=text, nargs="?", metavar="GROUP", help="without it: a line about each"
    )
    parser.add_argument(
        "--after",
        type=seconds,
        default=PATIENCE_SECONDS,
        metavar="SECONDS",
        help="what takes longer than this needs a person; 60 by default",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace, output: Output) -> int:
    with visit(args.dir) as directory:
        writer = writer_of(directory)
    with reading(args.dir) as engine:
        if args.group is not None:
            return _one(_seen(args, engine, args.group, writer), output)
        rows = [*_groups(args, engine, writer), *_others(args, engine)]
    output.rows("verdict", VERDICTS, rows, empty="there is no group, and nothing is undecided")
    return PROBLEM if any(row["needs_you"] for row in rows) else FINE


def _seen(args: argparse.Namespace, engine: Engine, name: str, writer: str | None) -> Seen:
    group = engine.group(name)
    members, held = None, None
    with suppress(fmq.ReadOnly):
        members, held = group.members(), group.in_hand(limit=HELD_MAX)
    now = datetime.now(UTC)
    return Seen(args.dir, name, group.infos(), members, held, writer, now, args.after)


def _one(seen: Seen, output: Output) -> int:
    found = remarks(seen)
    row = {
        "group": seen.group,
        "state": worst(found),
        "text": " ".join(each.text for each in found),
        "since": found[0].since,
        "unread": seen.unread,
        "members": None if seen.members is None else [each.name for each in seen.members],
    }
    output.facts("why", row, WHY, title=f"{seen.group}: {row['state']}")
    commands = dict(pair for each in found for pair in each.commands)
    output.commands("next", ({"run": run, "why": why} for run, why in commands.items()))
    return PROBLEM if row["state"] in PROBLEMS else FINE


def _groups(args: argparse.Namespace, engine: Engine, writer: str | None) -> Iterator[Row]:
    for name in sorted({info.group for info in engine.groups()}):
        with suppress(fmq.UnknownGroup):  # the group was deleted meanwhile
            found = remarks(_seen(args, engine, name, writer))
            state = worst(found)
            yield _verdict(f"group {name}", state, found[0].text, state in PROBLEMS)


def _others(args: argparse.Namespace, engine: Engine) -> Iterator[Row]:
    """Yield a row for each thing besides groups that may need a person."""
    now = datetime.now(UTC)
    if undecided := engine.undecided():
        oldest = min(undecided, key=lambda tx: tx.prepared_at)
        age = (now - oldest.prepared_at).total_seconds()
        said = (
            f"the oldest, {oldest.tx_id} of {oldest.producer or 'a producer without a name'}, for "
            f"{duration(age)}; {_asked(undecided)}. `fmq tx list` has them all."
        )
        what = f"{counted(len(undecided), 'undecided transaction')}"
        needs_you = age >= args.after or any(tx.parked for tx in undecided)
        yield _verdict("transactions", what, said, needs_you)
    read = {info.topic for info in engine.groups()}
    for topic in sorted({queue.topic for queue in engine.queues()} - read):
        yield _verdict(f"topic {topic}", "no group reads it", "Programs may read it without one.")
    stats = engine.stats()
    for what, trouble in (("engine", stats.failure), ("chores", stats.trouble)):
        if trouble:
            yield _verdict(what, "failed", trouble, True)
    if stats.kept is not None:
        holders = ", and ".join(stats.kept_by)
        said = f"segment {stats.kept.segment} is over the limits, and kept by {holders}"
        yield _verdict("retention", "waits", said)


def _asked(undecided: list[fmq.UndecidedTransaction]) -> str:
    parked = sum(tx.parked for tx in undecided)
    asked = sum(tx.answers > 0 for tx in undecided)
    if parked:
        return f"{parked} parked, as answers were unknown too often"
    if asked:
        return f"the checkers of {asked} said unknown"
    return "no checker has answered yet"


def _verdict(about: str, state: str, said: str, needs_you: bool = False) -> Row:
    return {"about": about, "state": state, "text": said, "needs_you": needs_you}


WHY = (Column("text", "why", folds=True),)
VERDICTS = (
    Column("about", "about", style="bold", copied=True),
    Column("state", "verdict"),
    Column("text", "why", folds=True),
)
