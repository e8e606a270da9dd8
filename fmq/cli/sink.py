"""`fmq sink`: copy topics of Kafka into a directory, each message once and in order.

How far it is, is in the directory, in one transaction with the messages. Run again, it goes on
there. Of two sinks with one `--name` the newer one copies, and the older one ends with 3. SIGTERM
and Ctrl-C end it after the running transaction.
"""

from __future__ import annotations

import argparse
from typing import Any

import fmq
from fmq.cli.arguments import count, text
from fmq.cli.codes import FINE
from fmq.cli.output import Column, Output
from fmq.cli.signals import call_when_set, stopped_by_signals
from fmq.findings.text import exact
from fmq.findings.visit import visit
from fmq.relay.addresses import sink_of


def add_to(verbs: Any, common: argparse.ArgumentParser) -> None:
    parser = verbs.add_parser(
        "sink",
        parents=[common],
        help="copy topics of Kafka into a directory",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("source", metavar="ADDRESS", help="kafka://host:9092")
    parser.add_argument("dir", metavar="DIR")
    parser.add_argument(
        "--topics", required=True, type=text, metavar="NAMES", help="with commas between them"
    )
    parser.add_argument("--name", type=text, default="sink", help="of this sink; 'sink' by default")
    parser.add_argument(
        "--batch", type=count, default=1000, metavar="N", help="messages at once; 1000 by default"
    )
    parser.add_argument("--once", action="store_true", help="end when all is here that is there")
    parser.add_argument(
        "--prefix", default="", metavar="TEXT", help="before the names of the topics in Kafka"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace, output: Output) -> int:
    with visit(args.dir):
        pass  # as in `fmq relay`
    with fmq.connect(args.dir) as engine, stopped_by_signals() as stop:
        topics = args.topics.split(",")
        how = {"topics": topics, "name": args.name, "batch": args.batch, "prefix": args.prefix}
        sink = sink_of(engine, args.source, **how)
        call_when_set(stop, sink.stop)
        sink.run(once=args.once)
        output.facts("sink", sink.stats()._asdict(), SINK, title=f"copied from {args.source}")
    return FINE


SINK = (
    Column("messages", "messages copied", show=exact),
    Column("transactions", "in transactions", show=exact),
    Column("doubts", "times in doubt", show=exact),
)
