"""`fmq dead`: see, replay and purge messages that a group has rejected or tried too often."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

import fmq
from fmq.cli.arguments import count, moment, text
from fmq.cli.codes import FINE
from fmq.cli.messages import body_laid_out, body_row, place_of, value_row
from fmq.cli.output import Column, Output, Row, note
from fmq.cli.place import reading, writing
from fmq.findings.body_values import codec_of
from fmq.findings.text import exact, size


def add_to(verbs: Any, common: argparse.ArgumentParser) -> None:
    parser = verbs.add_parser(
        "dead",
        aliases=["dlq"],
        help="list, show, replay and purge dead letters",
        description=__doc__,
    )
    actions = parser.add_subparsers(title="actions", required=True, metavar="ACTION")
    listing = actions.add_parser("list", parents=[common], help="those of a group, or how many")
    listing.add_argument("dir", metavar="DIR")
    listing.add_argument(
        "group", type=text, nargs="?", metavar="GROUP", help="without it: how many each group has"
    )
    listing.add_argument("--limit", type=count, default=100, metavar="N", help="100 by default")
    listing.add_argument("--after", type=count, metavar="NUMBER", help="go on after this one")
    listing.set_defaults(run=run_list)
    showing = actions.add_parser("show", parents=[common], help="one of them, with its body")
    _group(showing)
    showing.add_argument("number", type=count, metavar="NUMBER", help="as `list` shows it")
    showing.set_defaults(run=run_show)
    replaying = actions.add_parser(
        "replay", parents=[common], help="give them back to this group alone"
    )
    _group(replaying)
    which = replaying.add_mutually_exclusive_group(required=True)
    _numbers(which)
    which.add_argument("--all", action="store_true", help="all of them")
    replaying.set_defaults(run=run_replay)
    purging = actions.add_parser("purge", parents=[common], help="drop them for good")
    _group(purging)
    which = purging.add_mutually_exclusive_group(required=True)
    _numbers(which)
    which.add_argument("--all", action="store_true", help="all of them")
    which.add_argument("--before", type=moment, metavar="TIME", help="those that died before it")
    purging.set_defaults(run=run_purge)


def _group(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dir", metavar="DIR")
    parser.add_argument("group", type=text, metavar="GROUP")


def _numbers(parser: Any) -> None:
    parser.add_argument(
        "numbers", type=count, nargs="*", default=[], metavar="NUMBER", help="as `list` shows them"
    )


def run_list(args: argparse.Namespace, output: Output) -> int:
    with reading(args.dir) as engine:
        if args.group is None:
            infos = {info.group: info.dead_letters for info in engine.groups()}
            rows: list[Row] = [
                {"group": group, "dead_letters": dead} for group, dead in infos.items() if dead
            ]
            output.rows("group", GROUP, rows, empty="no group has dead letters")
            return FINE
        dead = engine.dead_letters(args.group)
        letters = dead.list(limit=args.limit, after=args.after)
        there = dead.count()
    output.rows("dead letter", LETTER, map(_row, letters), empty="there are none")
    if letters and len(letters) < there:
        note(f"{there} in all; --after {letters[-1].number} shows what follows")
    return FINE


def run_show(args: argparse.Namespace, output: Output) -> int:
    with reading(args.dir) as engine:
        letter = engine.dead_letters(args.group).get(args.number)
        value = value_row(letter.body, codec_of(engine, letter.topic))
    row = _row(letter) | {**body_row(letter.body), **value, "headers": letter.headers}
    output.facts("dead letter", row, SHOWN, title=f"{args.group}: dead letter {letter.number}")
    return FINE


def run_replay(args: argparse.Namespace, output: Output) -> int:
    with writing(args.dir) as engine:
        done = engine.dead_letters(args.group).replay(None if args.all else args.numbers)
    output.facts("replayed", {"group": args.group, "dead_letters": done}, DONE, title="replayed")
    return FINE


def run_purge(args: argparse.Namespace, output: Output) -> int:
    with writing(args.dir) as engine:
        dead = engine.dead_letters(args.group)
        if args.all or args.before is not None:
            done = dead.purge(before=args.before, all=args.all)
        else:
            done = dead.purge(args.numbers)
    output.facts("purged", {"group": args.group, "dead_letters": done}, DONE, title="purged")
    return FINE


def _row(letter: fmq.DeadLetter) -> dict[str, Any]:
    row = asdict(letter) | {"size": len(letter.body)}
    del row["body"]
    return row


GROUP = (
    Column("group", "group", style="bold", copied=True),
    Column("dead_letters", "dead letters", right=True),
)
LETTER = (
    Column("number", "number", style="bold", right=True, show=exact, copied=True),
    Column("", "was at", of_row=place_of, copied=True),
    Column("died_at", "died (UTC)"),
    Column("attempts", "attempts", right=True),
    Column("reason", "reason", folds=True),
    Column("key", "key", optional=True),
    Column("tag", "tag", optional=True),
    Column("size", "size", right=True, show=size),
)
SHOWN = (
    Column("", "was at", of_row=place_of),
    Column("time", "sent (UTC)"),
    Column("producer", "producer"),
    Column("tx_id", "transaction"),
    Column("died_at", "died (UTC)"),
    Column("attempts", "attempts"),
    Column("reason", "reason"),
    Column("key", "key"),
    Column("tag", "tag"),
    Column("headers", "headers"),
    Column("size", "size", show=size),
    Column("", "body", of_row=body_laid_out),
)
DONE = (Column("group", "group"), Column("dead_letters", "dead letters"))
