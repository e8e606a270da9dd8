"""`fmq send`: send what the command line says, or each line of the standard input.

A receipt is printed when its messages are sent. With `--json-lines` each line is an object with
`body` (text, or anything else that JSON has) or `body_base64`, and what else a message may have:
`key`, `tag`, `headers`, `message_id`, `priority`, `expires_at`, `deliver_at`, `topic`, `queue`.
So `fmq read A t --format json | fmq send B t --json-lines` copies messages.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from io import BufferedReader
from itertools import groupby
from typing import Any, cast

import fmq
from fmq.cli.arguments import count, header, moment, seconds, text
from fmq.cli.codes import ERROR, FINE
from fmq.cli.messages import RECEIPTS, Sent, receipt_row, sent_from
from fmq.cli.output import Output, Row, note
from fmq.cli.place import writing
from fmq.findings.text import counted

PIECE = 1 << 20  # how many bytes of the input are read at once, at most
Engine = fmq.Engine | fmq.RemoteEngine


def add_to(verbs: Any, common: argparse.ArgumentParser) -> None:
    parser = verbs.add_parser(
        "send",
        parents=[common],
        help="send a message, or each line of the input",
        description=__doc__,
    )
    parser.add_argument("dir", metavar="DIR")
    parser.add_argument("topic", type=text, nargs="?", metavar="TOPIC")
    parser.add_argument("body", nargs="?", metavar="BODY", help="else each line of the input")
    parser.add_argument("--json-lines", action="store_true", help="each line is an object")
    parser.add_argument("--create", action="store_true", help="make the directory if it is missing")
    parser.add_argument("--transaction", action="store_true", help="all messages, or none")
    parser.add_argument("--tx-id", type=text, metavar="ID", help="the id of the transaction")
    parser.add_argument("--producer", type=text, metavar="NAME", help="who sends")
    parser.add_argument("--queue", type=count, metavar="N", help="else the key chooses, or turns")
    parser.add_argument("--key", type=text, help="chooses the queue, and finds the message")
    parser.add_argument("--tag", type=text, help="that groups filter by")
    parser.add_argument(
        "--header", type=header, action="append", metavar="NAME=VALUE", help="once for each"
    )
    parser.add_argument("--id", type=text, dest="message_id", help="it is sent once under this id")
    parser.add_argument("--priority", type=count, metavar="0-9", help="9 comes first")
    when = parser.add_mutually_exclusive_group()
    when.add_argument("--delay", type=seconds, metavar="SECONDS", help="nobody sees it before")
    when.add_argument("--deliver-at", type=moment, metavar="TIME", help="nobody sees it before")
    parser.set_defaults(run=run, usage_error=parser.error)


def run(args: argparse.Namespace, output: Output) -> int:
    if args.topic is None and not args.json_lines:
        args.usage_error("TOPIC is missing; only lines of JSON can have their own")
    if args.body is None and sys.stdin is None:
        args.usage_error("BODY is missing, and there is no input to read lines from")
    if args.body is None and args.message_id is not None:
        args.usage_error("--id is of one message, so it needs a BODY; a line of JSON has its own")
    with writing(args.dir, create=args.create) as engine:
        lines = Lines(args, engine.options.message_bytes_max)
        try:
            if args.transaction or args.tx_id is not None:
                sent = _in_one_transaction(engine, lines, args)
            else:
                sent = _piece_by_piece(engine, lines, args)
            output.rows("receipt", RECEIPTS, sent)
        except (fmq.FmqError, ValueError, TypeError) as error:
            note(f"{error} {lines.what_was_sent()}")
            return ERROR
    return FINE


class Lines:
    """The messages of the command line or of the input, as calls of `send_many`."""

    def __init__(self, args: argparse.Namespace, bytes_max: int) -> None:
        self._args = args
        self._bytes_max = bytes_max
        self._at = 0  # number of input lines that were read
        self.sent = 0  # number of messages that are durable

    def calls(self) -> Iterator[dict[str, Any]]:
        """Yield the arguments of each call, as soon as its lines have come. Raises ValueError for
        a wrong line.
        """
        delay = self._args.delay
        for piece in self._pieces():
            for place, found in groupby(piece, lambda sent: sent[:3]):
                messages = [sent.message for sent in found]
                topic, queue, deliver_at = place
                yield {
                    "topic": topic,
                    "bodies": messages,
                    "queue": queue,
                    "delay": delay,
                    "deliver_at": deliver_at,
                }

    def _pieces(self) -> Iterator[list[Sent]]:
        if self._args.body is not None:
            yield [self._message(os.fsencode(self._args.body))]
            return
        for lines in self._read():
            found = []
            for line in lines:
                self._at += 1
                if line.strip() or not self._args.json_lines:
                    found.append(self._message(line))
            yield found

    def _read(self) -> Iterator[list[bytes]]:
        rest = b""
        source = cast(BufferedReader, sys.stdin.buffer)
        while data := source.read1(PIECE):
            *lines, rest = (rest + data).split(b"\n")
            if len(rest) > self._bytes_max:  # the engine will refuse the line
                lines, rest = [*lines, rest], b""
            if lines:
                yield lines
        if rest:
            yield [rest]

    def _message(self, line: bytes) -> Sent:
        args = self._args
        sent = Sent(None, None, None, fmq.Message(line))
        if args.json_lines and args.body is None:
            try:
                sent = sent_from(line)
            except (ValueError, TypeError) as error:
                raise ValueError(f"line {self._at} of the input: {error}.") from None
        given: dict[str, Any] = {
            name: value
            for name in ("key", "tag", "message_id", "priority")
            if (value := getattr(args, name)) is not None
        }
        if args.header:
            given["headers"] = dict(args.header)
        message = sent.message._replace(**given)
        topic = sent.topic if args.topic is None else args.topic
        if topic is None:
            raise ValueError(f"line {self._at} of the input has no 'topic', and TOPIC is missing.")
        queue = sent.queue if args.queue is None else args.queue
        return Sent(topic, queue, args.deliver_at or sent.deliver_at, message)

    def what_was_sent(self) -> str:
        """Return a sentence for the end of an error."""
        if not self.sent:
            return "Nothing was sent."
        count = counted(self.sent, "message")
        return f"What was sent before ({count}) is durable: send what follows."


def _piece_by_piece(engine: Engine, lines: Lines, args: argparse.Namespace) -> Iterator[Row | None]:
    for call in lines.calls():
        receipts = engine.send_many(**call, producer=args.producer)
        lines.sent += len(call["bodies"])
        yield from map(receipt_row, receipts)
        yield None  # a pause: the next line may come much later


def _in_one_transaction(
    engine: Engine, lines: Lines, args: argparse.Namespace
) -> Iterator[Row | None]:
    with engine.transaction(tx_id=args.tx_id, producer=args.producer) as tx:
        for call in lines.calls():
            tx.send_many(**call)
    yield from map(receipt_row, tx.commit())
