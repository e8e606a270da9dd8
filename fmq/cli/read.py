"""`fmq read` and `fmq tail`: print the messages of a topic, in the order in which they came.

Nothing is taken: groups do not notice. Messages of several queues come in the order of the
journal. If a codec is stored with the topic, the fields of the bodies are shown.
"""

from __future__ import annotations

import argparse
import sys
from collections import deque
from collections.abc import Iterator
from datetime import datetime
from heapq import merge
from typing import Any

import fmq
from fmq.basics.results import QueueInfo
from fmq.cli.arguments import count, filter_, place, text
from fmq.cli.codes import ERROR, FINE
from fmq.cli.messages import WHOLE, columns_of, place_of, row_of
from fmq.cli.output import Output, note
from fmq.cli.place import reading
from fmq.cli.tx import note_what_is_not_shown
from fmq.findings.body_values import codec_of
from fmq.store.bytes.kinds import Run

AT_ONCE = 1000  # messages that one read asks for
WAIT_SECONDS = 0.5  # seconds to wait in one queue before the others are looked at
LONG_SECONDS = 60.0  # seconds to wait if there is only one queue
TAIL = -10

Engine = fmq.ReadOnlyEngine | fmq.RemoteEngine
Found = fmq.Message | None  # None is a pause: the next message may come much later.


def add_to(verbs: Any, common: argparse.ArgumentParser) -> None:
    for name, start, follows, help_ in (
        ("read", 0, False, "the messages of a topic"),
        ("tail", TAIL, True, "the last messages of a topic, and those that come"),
    ):
        parser = verbs.add_parser(name, parents=[common], help=help_, description=__doc__)
        parser.add_argument("dir", metavar="DIR")
        parser.add_argument("topic", type=text, metavar="TOPIC")
        parser.add_argument("--queue", type=count, metavar="N", help="this queue alone")
        parser.add_argument(
            "--from",
            dest="start",
            type=place,
            default=start,
            metavar="WHERE",
            help="an offset, a time (in UTC without a zone), or -N for the last N; by default "
            + ("the first message" if start == 0 else f"{start}"),
        )
        parser.add_argument("--limit", type=count, metavar="N", help="stop after so many")
        parser.add_argument("--key", type=text, help="only those with this key")
        parser.add_argument("--tag", type=text, help="only those with this tag")
        parser.add_argument(
            "--filter", type=filter_, metavar="SQL", help="as in \"amount > 5 AND TAGS = 'new'\""
        )
        form = parser.add_mutually_exclusive_group()
        form.add_argument("--whole", action="store_true", help="all of each, JSON laid out")
        form.add_argument("--raw", action="store_true", help="only bodies, each with a line end")
        if follows:
            parser.add_argument(
                "--no-follow", dest="follows", action="store_false", help="end with those there"
            )
        else:
            end = parser.add_mutually_exclusive_group()
            end.add_argument(
                "--until", type=place, metavar="WHERE", help="only those before an offset or time"
            )
            end.add_argument(
                "-f", "--follow", dest="follows", action="store_true", help="and those that come"
            )
        parser.set_defaults(run=run, until=None)


def run(args: argparse.Namespace, output: Output) -> int:
    with reading(args.dir, follows=args.follows) as engine:
        there = engine.topic(args.topic).queues()
        queues = [each for each in there if args.queue in (None, each.queue)]
        if not queues:
            note(f"topic {args.topic} has the queues 0 to {len(there) - 1}, and no {args.queue}.")
            return ERROR
        codec = codec_of(engine, args.topic)
        found = _first(args.limit, _wanted(args, _messages(engine, queues, args)))
        if args.raw:
            for message in found:
                if message is None:
                    sys.stdout.buffer.flush()
                else:
                    sys.stdout.buffer.write(message.body + b"\n")
        elif args.whole:
            for message in found:
                if message is not None:
                    row = row_of(message, codec)
                    output.facts("message", row, WHOLE, title=place_of(row))
        else:
            rows = (None if message is None else row_of(message, codec) for message in found)
            output.rows("message", columns_of(codec), rows, empty="no such messages")
        note_what_is_not_shown(args.dir, engine, Run)
    return FINE


def _first(limit: int | None, found: Iterator[Found]) -> Iterator[Found]:
    """Yield at most `limit` messages, and each None, which stands for a pause."""
    if limit == 0:
        return
    for message in found:
        yield message
        if limit is not None and message is not None:
            limit -= 1
            if not limit:
                return


def _wanted(args: argparse.Namespace, found: Iterator[Found]) -> Iterator[Found]:
    """Yield the messages that the arguments ask for."""
    for message in found:
        if message is None or not (
            (args.key is not None and message.key != args.key)
            or (args.tag is not None and message.tag != args.tag)
            or (args.filter and not args.filter.matches_message(message.tag, message.headers))
        ):
            yield message


def _messages(engine: Engine, queues: list[QueueInfo], args: argparse.Namespace) -> Iterator[Found]:
    """Yield the messages of the queues, and with `--follow` also the messages that are sent
    later.
    """
    parts = [
        _stretch(
            engine,
            queue,
            _offset_of(engine, queue, args.start),
            queue.next if args.until is None else _offset_of(engine, queue, args.until),
        )
        for queue in queues
    ]
    in_order = merge(*parts, key=_position)
    is_last = isinstance(args.start, int) and args.start < 0
    yield from deque(in_order, -args.start) if is_last else in_order
    if args.follows:
        yield from _following(engine, args.topic, {queue.queue: queue.next for queue in queues})


def _offset_of(engine: Engine, queue: QueueInfo, where: int | datetime) -> int:
    """Return the offset that the argument of --from or --until names."""
    if isinstance(where, datetime):
        return engine.offset_at(queue.topic, queue.queue, where)
    return max(min(where, queue.next) if where >= 0 else queue.next + where, queue.first)


def _stretch(engine: Engine, queue: QueueInfo, start: int, end: int) -> Iterator[fmq.Message]:
    """Yield the messages of one queue from `start` up to, not including, `end`."""
    while start < end:
        limit = min(end - start, AT_ONCE)
        batch = engine.read_batch(queue.topic, queue=queue.queue, offset=start, limit=limit)
        if batch is None:
            return
        yield from batch.messages
        start = batch.next


def _following(engine: Engine, topic: str, ends: dict[int, int]) -> Iterator[Found]:
    """Yield the messages that come after the `ends` of the queues."""
    only_one = len(ends) == 1
    while True:
        found: list[fmq.Message] = []
        for queue, end in ends.items():
            came = engine.read_batch(topic, queue=queue, offset=end, limit=AT_ONCE)
            if came is not None:
                found += came.messages
                ends[queue] = came.next
        if found:
            yield from sorted(found, key=_position)
            continue
        yield None
        queue, end = next(iter(ends.items()))
        wait = LONG_SECONDS if only_one else WAIT_SECONDS
        engine.read_batch(topic, queue=queue, offset=end, limit=1, timeout=wait)


def _position(message: fmq.Message) -> tuple[int, int]:
    assert message.position is not None and message.offset is not None
    return message.position, message.offset
