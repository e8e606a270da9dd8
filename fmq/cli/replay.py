"""`fmq replay`: send messages again, from one time or position to another, into another topic.

All of them are one transaction: readers see none or all. Bodies, keys, tags, headers and priorities
are those of the messages; ids and times to expire are left out, as they would hide a second one.
With `--mark NAME` the same command again does nothing, also after a crash. If there is none to send
again, the mark is not set.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import chain
from typing import TYPE_CHECKING, Any

import fmq
from fmq.cli.arguments import count, moment, text
from fmq.cli.codes import FINE
from fmq.cli.output import Column, Output, note
from fmq.cli.place import writing
from fmq.findings.text import exact

if TYPE_CHECKING:
    from fmq.intake import ManySent

MESSAGES_AT_ONCE = 10_000


def add_to(verbs: Any, common: argparse.ArgumentParser) -> None:
    parser = verbs.add_parser(
        "replay",
        parents=[common],
        help="send the messages of a time again, into another topic",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("dir", metavar="DIR")
    bounds = ("from", "first", "the first is sent again"), ("to", "end", "it ends before this one")
    for name, place, what in bounds:
        parser.add_argument(
            f"--{name}",
            dest=place,
            type=place_or_time,
            metavar="PLACE",
            help=f"a position, or a time such as 2026-01-31T12:00Z: {what}",
        )
    parser.add_argument("--topic", type=text, required=True, help="whose messages are sent again")
    parser.add_argument("--into", type=text, required=True, metavar="TOPIC", help="where they go")
    parser.add_argument("--mark", type=text, metavar="NAME", help="notes that it was done")
    parser.set_defaults(run=run, usage_error=parser.error)


def place_or_time(word: str) -> int | datetime:
    """Return a position, or a time; without a time zone it is in UTC."""
    if word.isdecimal():
        return count(word)
    time = moment(word)
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def run(args: argparse.Namespace, output: Output) -> int:
    if args.topic == args.into:
        args.usage_error("--topic and --into are the same: each message would be there twice")
    try:
        from fmq.intake import RowsWritten, write_sent
    except ImportError as error:
        raise fmq.ExtraMissing("fmq replay", str(error.name), "arrow") from error
    with writing(args.dir) as engine:
        mark = None if args.mark is None else (args.mark, 1)
        sent = _sent(engine, args.topic, args.into, args.first or 0, args.end)
        if args.mark is not None and engine.mark(args.mark) is not None:
            written = RowsWritten(0, True)
        elif (first := next(sent, None)) is None:
            note(
                f"{args.topic}: no message there to send again. Nothing was sent, and no mark set."
            )
            written = RowsWritten(0, False)
        else:
            written = write_sent(engine, chain([first], sent), mark=mark)
    title = "nothing: it was done before" if written.was_there else f"sent again to {args.into}"
    output.facts("replay", written._asdict(), REPLAY, title=title)
    return FINE


def _sent(
    engine: Any, topic: str, into: str, first: int | datetime, end: int | datetime | None
) -> Iterator[tuple[ManySent, int]]:
    """Yield the messages that are there now and lie between `first` and `end`."""
    from fmq.intake import ROW_BYTES, ManySent

    nexts = {queue.queue: queue.next for queue in engine.queues(topic)}
    position = first if isinstance(first, int) else 0
    while True:
        found = engine.tail(position, topics=topic, limit=MESSAGES_AT_ONCE)
        known = [each for each in found.messages if each.offset < nexts.get(each.queue, 0)]
        chosen = [each for each in known if _lies_in(each, first, end)]
        if chosen:
            again = [
                fmq.Message(
                    each.body,
                    key=each.key,
                    tag=each.tag,
                    headers=each.headers,
                    priority=each.priority,
                )
                for each in chosen
            ]
            size = sum(len(each.body) + ROW_BYTES for each in chosen)
            yield ManySent(into, again), size
        if found.position == position or len(known) < len(found.messages):
            return
        position = found.position


def _lies_in(message: fmq.Message, first: int | datetime, end: int | datetime | None) -> bool:
    def is_before(bound: int | datetime) -> bool:
        mine: Any = message.position if isinstance(bound, int) else message.time
        return bool(mine < bound)

    return not is_before(first) and (end is None or is_before(end))


REPLAY = (Column("messages", "messages", show=exact),)
