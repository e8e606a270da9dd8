"""`fmq salvage`: copy all that is sound in a damaged directory to a new one, and list what is not.

The old directory stays as it is. Messages keep their offsets, and transactions, groups, acks, marks
and timers are there as far as they are sound. A transaction is there as a whole, or it is named. A
run that is interrupted leaves no journal.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

import fmq
from fmq.cli.backup import told
from fmq.cli.codes import FINE, PROBLEM
from fmq.cli.output import Column, Output
from fmq.cli.verify import PROBLEMS
from fmq.findings.text import exact, plain, size, span


def add_to(verbs: Any, common: argparse.ArgumentParser) -> None:
    parser = verbs.add_parser(
        "salvage",
        parents=[common],
        help="copy what is sound of a damaged directory",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("dir", metavar="DIR")
    parser.add_argument("new", metavar="NEW", help="a new or empty directory")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace, output: Output) -> int:
    with output.progress() as show:
        made = fmq.salvage(args.dir, args.new, progress=told(show))
    facts = asdict(made)
    lists = [facts.pop(name) for name in ("lost", "transactions", "problems")]
    verdict = "all of it was sound" if made.ok else "all that is sound"
    output.facts("salvage", {"ok": made.ok, **facts}, SALVAGE, title=f"{made.path}: {verdict}")
    lost, transactions, problems = lists
    if lost:
        output.rows("lost", LOST, iter(lost), title="messages that cannot be read any more")
    if transactions:
        title = "transactions of which something is lost"
        output.rows("transaction", TRANSACTIONS, iter(transactions), title=title)
    if problems:
        output.rows("problem", PROBLEMS, iter(problems), title="problems")
    return FINE if made.ok else PROBLEM


SALVAGE = (
    Column("segments", "segments"),
    Column("bytes", "sound journal", show=size),
    Column("messages", "messages"),
    Column("undecided", "undecided"),
    Column(
        "tail_bytes",
        "unfinished",
        of_row=lambda row: (
            f"{size(row['tail_bytes'])} that nothing proves durable, left out"
            if row["tail_bytes"]
            else ""
        ),
    ),
)
LOST = (
    Column("", "queue", of_row=lambda row: f"{plain(row['topic'])}/{row['queue']}", copied=True),
    Column("", "offsets", right=True, of_row=lambda row: span(row["first"], row["end"])),
    Column("", "messages", right=True, of_row=lambda row: exact(row["end"] - row["first"])),
)
TRANSACTIONS = (
    Column("tx_id", "transaction", style="bold", copied=True),
    Column("position", "position", right=True, show=exact),
    Column("reason", "what became of it", folds=True),
)
