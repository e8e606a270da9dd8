"""`fmq why`: what is stuck, why, since when, who holds it, and which command frees it.

With GROUP it says all about one group, else a line about each group, and about what else needs a
person. The exit code is 1 if something does. It asks the process that serves the directory; if none
does, it says what the journal says, and that is no lease and no member. It changes nothing.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from fmq.cli.arguments import seconds, text
from fmq.cli.codes import FINE, PROBLEM
from fmq.cli.output import Column, Output
from fmq.cli.place import reading
from fmq.findings.troubles import Troubles
from fmq.findings.verdict import PATIENCE_SECONDS, PROBLEMS, Seen, remarks, worst
from fmq.findings.visit import visit, writer_of


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
        help="what takes longer than this needs a person; 30 by default",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace, output: Output) -> int:
    with visit(args.dir) as directory:
        writer = writer_of(directory)
    with reading(args.dir) as engine:
        troubles = Troubles(engine, args.dir, writer, args.after)
        if args.group is not None:
            return _one(troubles.seen(args.group), output)
        rows = [*troubles.of_groups(), *troubles.of_others()]
    output.rows("verdict", VERDICTS, rows, empty="there is no group, and nothing is undecided")
    return PROBLEM if any(row["needs_you"] for row in rows) else FINE


def _one(seen: Seen, output: Output) -> int:
    found = remarks(seen)
    row = {
        "group": seen.group,
        "state": worst(found),
        "text": " ".join(each.text for each in found),
        "since": found[0].since,
        "unread": seen.unread,
        "members": None if seen.members is None else [each.name for each in seen.members],
        "former_members": [asdict(each) for each in seen.former],
    }
    output.facts("why", row, WHY, title=f"{seen.group}: {row['state']}")
    commands = dict(pair for each in found for pair in each.commands)
    output.commands("next", ({"run": run, "why": why} for run, why in commands.items()))
    return PROBLEM if row["state"] in PROBLEMS else FINE


WHY = (Column("text", "why", folds=True),)
VERDICTS = (
    Column("about", "about", style="bold", copied=True),
    Column("state", "verdict"),
    Column("text", "why", folds=True),
)
