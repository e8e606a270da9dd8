"""`fmq relay`: copy topics into another system, each message once and in order.

Run again, or on another machine after this one has died, it goes on where the target is. A
transaction over several topics arrives as one; in NATS one of over 999 messages, and in RabbitMQ
one of over 1 MB, arrives in several parts, each message once. Of two relays with one name the newer
one copies, and the older one ends with 3. SIGTERM and Ctrl-C end it after the running batch. The
group relay-NAME holds what is not copied yet, and `fmq group list` shows how far it is behind.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from threading import Event, Thread
from typing import Any

import fmq
from fmq.cli.arguments import count, seconds, text
from fmq.cli.codes import FINE
from fmq.cli.named import object_at
from fmq.cli.output import Column, Output, Row, note
from fmq.cli.relay_numbers import relay_metrics
from fmq.cli.signals import call_when_set, stopped_by_signals
from fmq.findings.text import exact
from fmq.findings.visit import visit
from fmq.relay import Relay
from fmq.relay.addresses import target_at

SHOW_SECONDS = 0.25


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
        help="kafka://host:9092, nats://host:4222, rabbitmq-stream://host, redis://host:6379, "
        "postgresql://host/shop or pgmq://host/shop; https://host/path, amqp://host, sqs://region "
        "and rocketmq://host:8081 may get a message twice",
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
        "routing keys in RabbitMQ, streams in Redis and queues in SQS",
    )
    parser.add_argument(
        "--on-refused",
        choices=("stop", "park"),
        default="stop",
        help="what to do about a message that the target never takes: end, by default, or make it "
        "a dead letter of relay-NAME, leave a stub with the header fmq-parked there, and go on",
    )
    parser.add_argument(
        "--tries",
        type=count,
        metavar="N",
        help="refuse a message that a web service has failed at N times in a row",
    )
    parser.add_argument(
        "--map",
        type=renamed,
        default={},
        metavar="A=B",
        help="names of topics that are called otherwise there, with commas between them",
    )
    parser.add_argument(
        "--partition",
        choices=("queue", "key"),
        default="queue",
        help="in Kafka: that with the number of the queue, by default, or by the key, as Kafka's "
        "client for Java does; in SQS the message group",
    )
    parser.add_argument(
        "--cloudevents",
        action="store_true",
        help="give each message the attributes of CloudEvents, too (binary mode)",
    )
    parser.add_argument(
        "--codec",
        type=text,
        metavar="PACKAGE:FUNCTION",
        help="what makes the body there of a message; what it fails for is refused",
    )
    parser.add_argument(
        "--standby",
        action="store_true",
        help="wait while another relay of this name copies; all of them need it",
    )
    parser.add_argument(
        "--from",
        dest="begin",
        metavar="PLACE",
        help="'start', 'end' or a position in the journal, where a new relay begins",
    )
    parser.add_argument(
        "--adopt",
        action="store_true",
        help="let a target that has a place go on at that of --from, by a decision of yours",
    )
    parser.add_argument(
        "--alarm",
        type=seconds,
        metavar="SECONDS",
        help="warn once the oldest message that is not copied was sent so long ago; retention waits"
        " for it",
    )
    parser.add_argument(
        "--http", metavar="HOST:PORT", help="answer /metrics for Prometheus and /healthz there"
    )
    parser.set_defaults(run=run)


def renamed(word: str) -> dict[str, str]:
    """Return the names of topics in `a=b,c=d`."""
    pairs = [each.partition("=") for each in text(word).split(",")]
    if not all(name and other for name, _, other in pairs):
        raise argparse.ArgumentTypeError(f"{word!r}: must be like orders=shop.orders")
    return {name: other for name, _, other in pairs}


def position_at(begin: str, engine: Any) -> int:
    """Return the position that `--from` names."""
    if begin in ("start", "end"):
        return 0 if begin == "start" else int(engine.stats().position)
    if not begin.isdecimal():
        raise fmq.BadOption(
            f"--from {begin!r}: is 'start', 'end' or a position. Nothing was copied."
        )
    return int(begin)


def run(args: argparse.Namespace, output: Output) -> int:
    # Raise now if there is no such directory: `connect` would make one, even for a mistyped name.
    with visit(args.dir):
        pass
    topics = args.topics.split(",")
    if args.adopt and args.begin is None:
        raise fmq.BadOption("--adopt needs --from, which says where to go on. Nothing was copied.")
    encode = None if args.codec is None else object_at(args.codec, "Nothing was copied.")
    with fmq.connect(args.dir) as engine, stopped_by_signals() as stop, ExitStack() as ends:
        queues = {topic: len(engine.queues(topic)) or 1 for topic in topics}
        how = {"create": args.create, "by_key": args.partition == "key", "tries": args.tries}
        shape = {"prefix": args.prefix, "names": args.map, "cloudevents": args.cloudevents}
        target = target_at(args.to, args.name, queues, engine=engine, **how, **shape)
        if not target.atomic:
            note(f"{args.to} gets messages again after a crash: drop those whose id it has seen")
        kind = {"batch": args.batch, "on_refused": args.on_refused, "standby": args.standby}
        more = {"encode": encode, "alarm_seconds": args.alarm}
        relay = Relay(engine, target, topics=topics, name=args.name, **kind, **more)
        call_when_set(stop, relay.stop)
        if args.http is not None:
            from fmq.metrics import MetricsPage  # imported here: it is slow to import

            numbers = partial(relay_metrics, relay, args.name)
            page = ends.enter_context(MetricsPage(engine, args.http, metrics=numbers))
            note(f"metrics at {page.url}")
        with closing(relay):
            if args.begin is not None:
                relay.begin_at(position_at(args.begin, engine), adopt=args.adopt)
            if sys.stdout.isatty():
                show = ends.enter_context(output.progress())
                ends.enter_context(shown(relay, engine, show))
            relay.run(once=args.once)
        ends.close()
        facts = relay.stats()._asdict()
        times = facts.pop("commits")
        facts["commit_p50_seconds"], facts["commit_p99_seconds"] = map(times.within, (0.5, 0.99))
        output.facts("relay", facts, RELAY, title=f"copied to {args.to}")
    return FINE


@contextmanager
def shown(relay: Relay, engine: Any, show: Callable[[Row], None]) -> Iterator[None]:
    """Show how far the relay is, four times a second, from a thread of its own."""
    ended = Event()
    begin = relay.stats().position

    def look() -> None:
        while not ended.wait(SHOW_SECONDS):
            with suppress(fmq.FmqError):  # the relay says what is wrong
                stats, end = relay.stats(), engine.stats().position
                done = max(stats.position - begin, 0)
                total = max(end - begin, done, 1)
                show({"rows": stats.messages, "bytes": done, "bytes_total": total})

    thread = Thread(target=look, name="fmq relay", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


RELAY = (
    Column("messages", "messages copied", show=exact),
    Column("batches", "in batches", show=exact),
    Column("doubts", "times in doubt", show=exact),
    Column("parked", "refused, dead letters now", show=exact),
    Column("lag", "not copied yet", show=exact),
    Column("commit_p50_seconds", "half of the batches stored within, s"),
    Column("commit_p99_seconds", "99 % of them within, s"),
)
