"""`fmq relay-status`: how far the target of a relay is, beside the ends of the queues here.

It asks the target for the place that it keeps, and claims nothing, so a relay that runs goes on.
"""

from __future__ import annotations

import argparse
from contextlib import closing
from typing import Any

from fmq.cli.arguments import text
from fmq.cli.codes import FINE
from fmq.cli.output import Column, Output
from fmq.cli.place import reading
from fmq.findings.text import exact, moment
from fmq.relay.addresses import target_at
from fmq.relay.relay_status import relayed_queues


def add_to(verbs: Any, common: argparse.ArgumentParser) -> None:
    parser = verbs.add_parser(
        "relay-status",
        parents=[common],
        help="how far a relay's target is",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("dir", metavar="DIR")
    parser.add_argument("--to", required=True, metavar="ADDRESS", help="as for `fmq relay`")
    parser.add_argument(
        "--name", type=text, default="relay", help="of the relay; 'relay' by default"
    )
    parser.add_argument("--prefix", default="", metavar="TEXT", help="the one that the relay has")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace, output: Output) -> int:
    with (
        reading(args.dir) as engine,
        closing(target_at(args.to, args.name, {}, prefix=args.prefix, engine=engine)) as target,
    ):
        topics = sorted({info.topic for info in engine.groups(f"relay-{args.name}")})
        rows = [each._asdict() for each in relayed_queues(engine, target, topics)]
    empty = f"no relay of the name {args.name!r} has begun here"
    output.rows("relayed", RELAYED, rows, empty=empty)
    return FINE


RELAYED = (
    Column("topic", "topic"),
    Column("queue", "queue", show=exact),
    Column("copied", "copied below", show=exact),
    Column("end", "end here", show=exact),
    Column("lag", "not copied", show=exact),
    Column("waits_since", "waits since", show=moment),
)
