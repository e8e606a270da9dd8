"""`fmq group`: show how far each group is, and move or delete a group."""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import asdict
from typing import Any

from fmq.cli.arguments import count, moment, text
from fmq.cli.codes import FINE
from fmq.cli.limit import LIMIT
from fmq.cli.output import Column, Output
from fmq.cli.pause import PAUSED, add_why
from fmq.cli.person import person
from fmq.cli.place import reading, writing
from fmq.findings.text import exact, plain

RANGES_COUNTED = 1000  # in hand, to say how much each member holds


def add_to(verbs: Any, common: argparse.ArgumentParser) -> None:
    parser = verbs.add_parser(
        "group", help="list, show, move and delete groups", description=__doc__
    )
    actions = parser.add_subparsers(title="actions", required=True, metavar="ACTION")
    listing = actions.add_parser("list", parents=[common], help="how far each group is")
    listing.add_argument("dir", metavar="DIR")
    listing.set_defaults(run=run_list)
    showing = actions.add_parser("show", parents=[common], help="who reads what, and why")
    _name(showing)
    showing.set_defaults(run=run_show)
    seeking = actions.add_parser("seek", parents=[common], help="let it go on elsewhere")
    _name(seeking)
    seeking.add_argument("topic", type=text, metavar="TOPIC")
    seeking.add_argument("--queue", type=count, metavar="N", help="one queue; else all")
    where = seeking.add_mutually_exclusive_group(required=True)
    where.add_argument("--offset", type=count, metavar="N", help="at this message")
    where.add_argument("--time", type=moment, metavar="TIME", help="such as 2026-11-24T12:00:00Z")
    where.add_argument("--to", choices=("earliest", "latest"), help="at one end")
    seeking.set_defaults(run=run_seek)
    skipping = actions.add_parser("skip", parents=[common], help="let it pass over messages")
    _name(skipping)
    skipping.add_argument("topic", type=text, metavar="TOPIC")
    skipping.add_argument("queue", type=count, metavar="QUEUE", help="the number of a queue")
    skipping.add_argument("offset", type=count, metavar="OFFSET", help="the first message")
    skipping.add_argument("--count", type=count, default=1, metavar="N", help="1 by default")
    skipping.set_defaults(run=run_skip)
    for verb, what in (
        ("release", "give back what a member holds, at once"),
        ("put-out", "take a member out, and give back what it holds"),
    ):
        taking = actions.add_parser(verb, parents=[common], help=what)
        _name(taking)
        taking.add_argument("member", type=text, metavar="MEMBER", help="as `members` names it")
        add_why(taking)
        taking.set_defaults(run=run_release if verb == "release" else run_put_out)
    purging = actions.add_parser("purge", parents=[common], help="pass over its backlog")
    _name(purging)
    purging.add_argument("topic", type=text, metavar="TOPIC")
    purging.add_argument("--queue", type=count, metavar="N", help="one queue; else all")
    upto = purging.add_mutually_exclusive_group(required=True)
    upto.add_argument("--offset", type=count, metavar="N", help="up to this offset")
    upto.add_argument("--time", type=moment, metavar="TIME", help="what was sent before it")
    upto.add_argument("--to", choices=("latest",), help="all that is there")
    add_why(purging)
    purging.set_defaults(run=run_purge)
    deleting = actions.add_parser("delete", parents=[common], help="forget it, in all its topics")
    _name(deleting)
    deleting.set_defaults(run=run_delete)


def _name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dir", metavar="DIR")
    parser.add_argument("name", type=text, metavar="NAME", help="the name of the group")


def run_list(args: argparse.Namespace, output: Output) -> int:
    with reading(args.dir) as engine:
        rows = [asdict(info) for info in engine.groups()]
    output.rows("group", GROUP, rows, empty="there is no group")
    return FINE


def run_show(args: argparse.Namespace, output: Output) -> int:
    with writing(args.dir) as engine:
        group = engine.group(args.name)
        rows, members = [asdict(info) for info in group.infos()], group.members()
        former = [asdict(member) for member in group.former_members()]
        holds: Counter[str | None] = Counter()
        for each in group.in_hand(limit=RANGES_COUNTED):
            holds[each.member] += each.count
    output.rows("group", GROUP, rows, empty="its topics have no messages yet")
    shown = [asdict(member) | {"holds": holds[member.name]} for member in members]
    output.rows("member", MEMBER, shown, empty="it has no members now", title="members")
    if former:
        output.rows("former_member", FORMER, former, title="members that are out")
    return FINE


def run_seek(args: argparse.Namespace, output: Output) -> int:
    with writing(args.dir) as engine:
        group = engine.group(args.name)
        group.seek(args.topic, queue=args.queue, offset=args.offset, time=args.time, to=args.to)
        rows = [asdict(info) for info in group.infos()]
    output.rows("group", GROUP, rows)
    return FINE


def run_skip(args: argparse.Namespace, output: Output) -> int:
    with writing(args.dir) as engine:
        group = engine.group(args.name)
        group.skip(args.topic, args.queue, args.offset, count=args.count)
        rows = [asdict(info) for info in group.infos()]
    output.rows("group", GROUP, rows)
    return FINE


def run_release(args: argparse.Namespace, output: Output) -> int:
    with writing(args.dir) as engine:
        group = engine.group(args.name)
        count = group.release(args.member, reason=args.reason, by=args.by or person())
    output.say(f"{args.member} has given back {count:,} messages")
    return FINE


def run_put_out(args: argparse.Namespace, output: Output) -> int:
    with writing(args.dir) as engine:
        group = engine.group(args.name)
        count = group.put_out(args.member, reason=args.reason, by=args.by or person())
    output.say(f"{args.member} is out, and {count:,} messages go to others")
    return FINE


def run_purge(args: argparse.Namespace, output: Output) -> int:
    with writing(args.dir) as engine:
        group = engine.group(args.name)
        where = {"queue": args.queue, "offset": args.offset, "time": args.time, "to": args.to}
        group.purge(args.topic, **where, reason=args.reason, by=args.by or person())
        rows = [asdict(info) for info in group.infos()]
    output.rows("group", GROUP, rows)
    return FINE


def run_delete(args: argparse.Namespace, output: Output) -> int:
    with writing(args.dir) as engine:
        group = engine.group(args.name)
        unread = sum(info.unread for info in group.infos())
        group.delete()
    lose = "messages that it had not acked lose this reader"
    output.say(f"{plain(args.name)} is deleted: {unread:,} {lose}")
    return FINE


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds else ""


GROUP = (
    Column("group", "group", style="bold", copied=True),
    Column("", "queue", of_row=lambda row: f"{plain(row['topic'])}/{row['queue']}", copied=True),
    Column("acked_below", "acked below", right=True, show=exact),
    Column("acked_beyond", "acked beyond", right=True, optional=True),
    Column("unread", "unread", right=True),
    Column("in_hand", "in hand", right=True, optional=True),
    Column("members", "members", right=True, optional=True),
    Column("replayed", "replayed", right=True, optional=True),
    Column("behind_seconds", "behind", right=True, show=_seconds),
    Column("lost", "lost", right=True, optional=True),
    Column("skipped", "skipped", right=True, optional=True),
    Column("dead_letters", "dead", right=True, optional=True),
    Column("expired", "expired", right=True, optional=True),
    Column("filter", "filter", optional=True, folds=True),
    PAUSED,
    LIMIT,
)
FORMER = (
    Column("name", "member", style="bold", copied=True),
    Column("out_at", "out since (UTC)"),
    Column("why", "why"),
    Column("held", "held", right=True),
    Column("pid", "process", right=True, show=exact),
    Column("host", "host"),
    Column("address", "address", optional=True),
    Column("by", "by"),
    Column("reason", "reason", folds=True),
)
MEMBER = (
    Column("name", "member", style="bold", copied=True),
    Column("topics", "topics", folds=True),
    Column(
        "", "queues", of_row=lambda row: ", ".join(f"{t}/{q}" for t, q in row["owns"]), folds=True
    ),
    Column("strategy", "strategy", optional=True),
    Column("holds", "holds", right=True),
    Column("seen_seconds", "last seen", right=True, show=lambda age: f"{age:.1f} s ago"),
    Column("pid", "process", right=True, show=exact),
    Column("host", "host"),
    Column("address", "address", optional=True),
)
