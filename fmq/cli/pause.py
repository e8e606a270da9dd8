"""`fmq pause` and `fmq resume`: hand out nothing to a group, or nothing of a topic, for a while."""

from __future__ import annotations

import argparse
from typing import Any

from fmq.cli.arguments import text
from fmq.cli.codes import FINE
from fmq.cli.output import Column, Output, note
from fmq.cli.person import person
from fmq.cli.place import writing
from fmq.findings.text import moment, plain


def add_to(verbs: Any, common: argparse.ArgumentParser) -> None:
    for verb, what, needs_reason in (
        ("pause", "hand out nothing to a group, or nothing of a topic", True),
        ("resume", "end a pause of a group or a topic", False),
    ):
        parser = verbs.add_parser(verb, parents=[common], help=what, description=__doc__)
        parser.add_argument("dir", metavar="DIR")
        whom = parser.add_mutually_exclusive_group(required=True)
        whom.add_argument("--group", type=text, metavar="GROUP", help="in all its topics")
        whom.add_argument("--topic", type=text, metavar="TOPIC", help="for all its groups")
        add_why(parser, needs_reason=needs_reason)
        parser.set_defaults(run=run, verb=verb)


def add_why(parser: argparse.ArgumentParser, *, needs_reason: bool = True) -> None:
    """Add the arguments that say who changes something, and why."""
    parser.add_argument(
        "--reason", type=text, default="", required=needs_reason, help="why, for others to read"
    )
    parser.add_argument("--by", type=text, metavar="NAME", help="you, unless named")


def run(args: argparse.Namespace, output: Output) -> int:
    with writing(args.dir) as engine:
        found = engine.topic(args.topic) if args.group is None else engine.group(args.group)
        change = found.pause if args.verb == "pause" else found.resume
        change(reason=args.reason, by=args.by or person())
    what = f"group {args.group}" if args.topic is None else f"topic {args.topic}"
    note(f"{what} is {'paused' if args.verb == 'pause' else 'not paused now'}.")
    return FINE


def paused_since(pause: dict[str, Any]) -> str:
    """Return who has paused something, since when and why."""
    of = "the topic, " if pause["of"] == "topic" else ""
    return f"{of}{since(pause)}"


def since(change: dict[str, Any]) -> str:
    """Return since when a change holds, by whom and why."""
    why = f": {plain(change['reason'])}" if change["reason"] else ""
    return f"since {moment(change['since'])} by {plain(change['by'])}{why}"


PAUSED = Column("paused", "paused", optional=True, folds=True, show=paused_since)
