"""`fmq topic`: list the topics of a directory, make one, or add queues to one."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from fmq.cli.arguments import count, seconds, text
from fmq.cli.codes import FINE
from fmq.cli.output import Column, Output
from fmq.cli.pause import PAUSED
from fmq.cli.place import reading, writing
from fmq.findings.text import exact, plain


def add_to(verbs: Any, common: argparse.ArgumentParser) -> None:
    parser = verbs.add_parser("topic", help="list, make and enlarge topics", description=__doc__)
    actions = parser.add_subparsers(title="actions", required=True, metavar="ACTION")
    listing = actions.add_parser("list", parents=[common], help="the queues of all topics")
    listing.add_argument("dir", metavar="DIR")
    listing.set_defaults(run=run_list)
    making = actions.add_parser("create", parents=[common], help="make it before a message does")
    _name(making)
    making.add_argument("--queues", type=count, metavar="N", help="else as the options say")
    making.add_argument("--retain", type=seconds, metavar="SECONDS", help="how long it keeps them")
    making.set_defaults(run=run_create)
    adding = actions.add_parser("add-queues", parents=[common], help="give it more queues")
    _name(adding)
    adding.add_argument("count", type=count, metavar="N", help="how many more")
    adding.set_defaults(run=run_add_queues)
    deleting = actions.add_parser("delete", parents=[common], help="with all its messages")
    _name(deleting)
    deleting.set_defaults(run=run_delete)


def run_delete(args: argparse.Namespace, output: Output) -> int:
    with writing(args.dir) as engine:
        engine.topic(args.name).delete()
    return FINE


def _name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dir", metavar="DIR")
    parser.add_argument("name", type=text, metavar="NAME", help="the name of the topic")


def run_list(args: argparse.Namespace, output: Output) -> int:
    with reading(args.dir) as engine:
        rows = [asdict(info) for info in engine.queues()]
    output.rows("queue", QUEUE, rows, empty="there is no topic")
    return FINE


def run_create(args: argparse.Namespace, output: Output) -> int:
    with writing(args.dir) as engine:
        topic = engine.create_topic(args.name, queues=args.queues, retain_seconds=args.retain)
        output.rows("queue", QUEUE, [asdict(info) for info in topic.queues()])
    return FINE


def run_add_queues(args: argparse.Namespace, output: Output) -> int:
    with writing(args.dir) as engine:
        topic = engine.topic(args.name)
        topic.add_queues(args.count)
        output.rows("queue", QUEUE, [asdict(info) for info in topic.queues()])
    return FINE


QUEUE = (
    Column("", "queue", of_row=lambda row: f"{plain(row['topic'])}/{row['queue']}", copied=True),
    Column("first", "first", right=True, show=exact),
    Column("next", "next", right=True, show=exact),
    PAUSED,
)
