"""`fmq limit`: hand out no more to a group than so many messages at once, or a second."""

from __future__ import annotations

import argparse
from typing import Any

import fmq
from fmq.cli.arguments import count, rate, text
from fmq.cli.codes import FINE
from fmq.cli.output import Column, Output
from fmq.cli.pause import add_why, since
from fmq.cli.person import person
from fmq.cli.place import writing


def add_to(verbs: Any, common: argparse.ArgumentParser) -> None:
    parser = verbs.add_parser(
        "limit",
        parents=[common],
        help="hand out no more to a group than so much at once, or a second",
        description=__doc__,
    )
    parser.add_argument("dir", metavar="DIR")
    parser.add_argument("group", metavar="GROUP", type=text)
    parser.add_argument(
        "--concurrency", type=count, metavar="N", help="so many messages in hand at once"
    )
    parser.add_argument(
        "--rate", type=rate, metavar="N", help="so many messages a second, as in 10 or 0.5"
    )
    parser.add_argument(
        "--concurrency-by-key", type=count, metavar="N", help="so many of one key in hand at once"
    )
    parser.add_argument("--rate-by-key", type=rate, metavar="N", help="so many of one key a second")
    parser.add_argument("--fair", action="store_true", help="keys take turns")
    parser.add_argument("--none", action="store_true", help="end the limit that the group has")
    add_why(parser)
    parser.set_defaults(run=run, parser=parser)


def run(args: argparse.Namespace, output: Output) -> int:
    limits = {name: getattr(args, name) for name in LIMITS}
    limits["fair"] = args.fair
    if bool(args.none) == any(each not in (None, False) for each in limits.values()):
        args.parser.error("either name a limit, or end it with --none")
    with writing(args.dir) as engine:
        engine.group(args.group).limit(**limits, reason=args.reason, by=args.by or person())
    return FINE


LIMITS = ("concurrency", "rate", "concurrency_by_key", "rate_by_key")


def limit_said(limit: dict[str, Any]) -> str:
    """Return what a group may be handed at most, who says so, since when and why."""
    return f"{fmq.Limit(**limit).in_words()}, {since(limit)}"


LIMIT = Column("limit", "limit", optional=True, folds=True, show=limit_said)
