"""`fmq relay`: copy topics into another system, each message once and in order.

Run again, or on another machine after this one has died, it goes on where the target is. A
transaction over several topics arrives as one; in NATS one of over 999 messages, and in RabbitMQ
one of over 1 MB, arrives in several parts, each message once. Of two relays with one name the newer
one copies, and the older one ends with 3. SIGTERM and Ctrl-C end it after the running batch. The
group relay-NAME holds what is not copied yet, and `fmq group list` shows how far it is behind.
"""

from __future__ import annotations

import argparse
from contextlib import closing
from typing import Any

import fmq
from fmq.cli.arguments import count, text
from fmq.cli.codes import FINE
from fmq.cli.output import Column, Output, note
from fmq.cli.signals import call_when_set, stopped_by_signals
from fmq.findings.text import exact
from fmq.findings.visit import visit
from fmq.relay import Relay
from fmq.relay.addresses import target_at


def add_to(verbs: Any, common: argparse.ArgumentParser) -> None:
    parser = verbs.add_parser(
        "relay",
        parents=[common],
        help="copy topics into another system",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("dir", metavar="DIR")
    parser.add_argument(
        "--to",
        required=True,
        metavar="ADDRESS",
        help="kafka://host:9092, nats://host:4222, rabbitmq-stream://host, redis://host:6379 or "
        "postgresql://host/shop; https://host/path and amqp://host may get a message twice",
    )
    parser.add_argument(
        "--topics", required=True, type=text, metavar="NAMES", help="with commas between them"
    )
    parser.add_argument(
        "--name", type=text, default="relay", help="of this relay; 'relay' by default"
    )
    parser.add_argument(
        "--batch", type=count, default=1000, metavar="N", help="messages at once; 1000 by default"
    )
    parser.add_argument("--once", action="store_true", help="end when all is there that is now")
    parser.add_argument(
        "--create", action="store_true", help="make tables or topics there, if they are missing"
    )
    parser.add_argument(
        "--prefix",
        default="",
        metavar="TEXT",
        help="before the names of topics in Kafka, subjects in NATS and RabbitMQ's streams, "
        "routing keys in RabbitMQ and streams in Redis",
    )
    parser.add_argument(
        "--on-refused",
        choices=("stop", "park"),
        default="stop",
        help="what to do about a message that the target never takes: end, by default, or make it "
        "a dead letter of relay-NAME and go on",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace, output: Output) -> int:
    # Raise now if there is no such directory: `connect` would make one, even for a mistyped name.
    with visit(args.dir):
        pass
    topics = args.topics.split(",")
    with fmq.connect(args.dir) as engine, stopped_by_signals() as stop:
        queues = {topic: len(engine.queues(topic)) or 1 for topic in topics}
        how = {"create": args.create, "prefix": args.prefix}
        target = target_at(args.to, args.name, queues, engine=engine, **how)
        if not target.atomic:
            note(f"{args.to} gets messages again after a crash: drop those whose id it has seen")
        kind = {"batch": args.batch, "on_refused": args.on_refused}
        relay = Relay(engine, target, topics=topics, name=args.name, **kind)
        call_when_set(stop, relay.stop)
        with closing(relay):
            relay.run(once=args.once)
        output.facts("relay", relay.stats()._asdict(), RELAY, title=f"copied to {args.to}")
    return FINE


RELAY = (
    Column("messages", "messages copied", show=exact),
    Column("batches", "in batches", show=exact),
    Column("doubts", "times in doubt", show=exact),
    Column("parked", "refused, dead letters now", show=exact),
    Column("lag", "not copied yet", show=exact),
)
