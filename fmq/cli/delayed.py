"""`fmq delayed`: list the messages that wait for their time, or take some back."""

from __future__ import annotations

import argparse
from typing import Any

from fmq.cli.arguments import count, text
from fmq.cli.codes import FINE, PROBLEM
from fmq.cli.messages import receipt_row
from fmq.cli.output import Column, Output, note
from fmq.cli.place import reading, writing
from fmq.findings.text import exact, plain


def add_to(verbs: Any, common: argparse.ArgumentParser) -> None:
    parser = verbs.add_parser(
        "delayed", help="list and recall messages that wait", description=__doc__
    )
    actions = parser.add_subparsers(title="actions", required=True, metavar="ACTION")
    listing = actions.add_parser("list", parents=[common], help="in the order of their times")
    listing.add_argument("dir", metavar="DIR")
    listing.add_argument("topic", type=text, nargs="?", metavar="TOPIC", help="this one alone")
    listing.add_argument("--limit", type=count, default=100, metavar="N", help="100 by default")
    listing.set_defaults(run=run_list)
    recalling = actions.add_parser("recall", parents=[common], help="take one record back")
    recalling.add_argument("dir", metavar="DIR")
    recalling.add_argument(
        "position", type=count, metavar="POSITION", help="of the record, as `list` shows it"
    )
    recalling.set_defaults(run=run_recall)


def run_list(args: argparse.Namespace, output: Output) -> int:
    with reading(args.dir) as engine:
        receipts = engine.delayed(args.topic, limit=args.limit)
    output.rows("delayed", COLUMNS, map(receipt_row, receipts), empty="nothing waits for its time")
    return FINE


def run_recall(args: argparse.Namespace, output: Output) -> int:
    with writing(args.dir) as engine:
        found = [each for each in engine.delayed(limit=MANY) if each.position == args.position]
        recalled = [receipt for receipt in found if engine.recall(receipt)]
    if not recalled:
        note(
            f"position {args.position}: nothing there waits for its time. It was published or "
            "recalled before, or never delayed. Nothing was changed."
        )
        return PROBLEM
    output.rows("recalled", COLUMNS, map(receipt_row, recalled))
    return FINE


MANY = 1 << 31
COLUMNS = (
    Column("position", "position", style="bold", right=True, show=exact, copied=True),
    Column("", "queue", of_row=lambda row: f"{plain(row['topic'])}/{row['queue']}", copied=True),
    Column("count", "messages", right=True),
    Column("due", "due (UTC)"),
)
