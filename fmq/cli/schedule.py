"""`fmq schedule`: messages that are published again and again, at the times of a cron expression.

The expression has five fields (minute, hour, day, month, weekday), or six with the seconds in
front. Each due time is published once, by the process that has the directory open.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

import fmq
from fmq.cli.arguments import header, text
from fmq.cli.codes import FINE
from fmq.cli.messages import body_row
from fmq.cli.output import Column, Output, Row
from fmq.cli.pause import add_why, paused_since
from fmq.cli.person import person
from fmq.cli.place import reading, writing


def add_to(verbs: Any, common: argparse.ArgumentParser) -> None:
    parser = verbs.add_parser(
        "schedule", help="messages that are published again and again", description=__doc__
    )
    actions = parser.add_subparsers(title="actions", required=True, metavar="ACTION")
    listing = actions.add_parser("list", parents=[common], help="all of them, by name")
    listing.add_argument("dir", metavar="DIR")
    listing.set_defaults(run=run_list)
    adding = actions.add_parser("add", parents=[common], help="make one, or replace it")
    adding.add_argument("dir", metavar="DIR")
    adding.add_argument("name", type=text, metavar="NAME", help="of the schedule")
    adding.add_argument("cron", type=text, metavar="CRON", help="such as '0 3 * * *'")
    adding.add_argument("topic", type=text, metavar="TOPIC", help="it gets the messages")
    adding.add_argument("body", metavar="BODY", help="of each message")
    adding.add_argument("--timezone", type=text, default="UTC", metavar="ZONE", help="else UTC")
    adding.add_argument("--key", type=text, help="chooses the queue, and finds the message")
    adding.add_argument("--tag", type=text, help="that groups filter by")
    adding.add_argument(
        "--header", type=header, action="append", metavar="NAME=VALUE", help="once for each"
    )
    adding.add_argument(
        "--missed",
        choices=("once", "skip"),
        default="once",
        help="times that pass while nothing runs: one message for all (the default), or none",
    )
    adding.add_argument("--replace", action="store_true", help="another one of this name")
    adding.add_argument("--by", type=text, metavar="NAME", help="you, unless named")
    adding.set_defaults(run=run_add)
    for action, what, needs_reason in (
        ("pause", "publish nothing for a while", True),
        ("resume", "go on; what was due meanwhile is passed over", False),
        ("run", "publish the message once more, now", False),
        ("remove", "what it has published stays", False),
    ):
        changing = actions.add_parser(action, parents=[common], help=what)
        changing.add_argument("dir", metavar="DIR")
        changing.add_argument("name", type=text, metavar="NAME", help="of the schedule")
        add_why(changing, needs_reason=needs_reason)
        changing.set_defaults(run=run_change, action=action)


def run_list(args: argparse.Namespace, output: Output) -> int:
    with reading(args.dir) as engine:
        found = engine.schedules()
    output.rows("schedule", COLUMNS, map(_row, found), empty="there are no schedules")
    return FINE


def run_add(args: argparse.Namespace, output: Output) -> int:
    with writing(args.dir) as engine:
        made = engine.schedule(
            *(args.name, args.cron, args.topic, args.body.encode("utf-8", "surrogateescape")),
            timezone=args.timezone,
            key=args.key,
            tag=args.tag,
            headers=dict(args.header or ()),
            missed=args.missed,
            replace=args.replace,
            by=args.by or person(),
        )
        found = made.info()
    output.rows("schedule", COLUMNS, [_row(found)])
    return FINE


def run_change(args: argparse.Namespace, output: Output) -> int:
    with writing(args.dir) as engine:
        found = engine.scheduled(args.name)
        change = found.run_now if args.action == "run" else getattr(found, args.action)
        change(reason=args.reason, by=args.by or person())
    return FINE


def _row(found: fmq.ScheduleInfo) -> Row:
    return {**asdict(found), **body_row(found.body)}


COLUMNS = (
    Column("name", "name", style="bold", copied=True),
    Column("cron", "cron", copied=True),
    Column("timezone", "time zone"),
    Column("topic", "topic", copied=True),
    Column("next", "next (UTC)"),
    Column("last", "last (UTC)"),
    Column("body", "body", folds=True),
    Column("missed", "missed"),
    Column("by", "by"),
    Column("paused", "paused", optional=True, folds=True, show=paused_since),
)
