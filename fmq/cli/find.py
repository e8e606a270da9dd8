"""`fmq find`: print the messages of a topic that have a key, the newest first."""

from __future__ import annotations

import argparse
from typing import Any

from fmq.cli.arguments import count, text
from fmq.cli.codes import FINE, PROBLEM
from fmq.cli.messages import columns_of, row_of
from fmq.cli.output import Output
from fmq.cli.place import reading
from fmq.findings.body_values import codec_of


def add_to(verbs: Any, common: argparse.ArgumentParser) -> None:
    parser = verbs.add_parser(
        "find", parents=[common], help="the messages of a key", description=__doc__
    )
    parser.add_argument("dir", metavar="DIR")
    parser.add_argument("topic", type=text, metavar="TOPIC")
    parser.add_argument("key", type=text, metavar="KEY", help="the key of the messages")
    parser.add_argument("--limit", type=count, default=100, metavar="N", help="100 by default")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace, output: Output) -> int:
    with reading(args.dir) as engine:
        found = engine.find(args.topic, key=args.key, limit=args.limit)
        codec = codec_of(engine, args.topic)
    rows = (row_of(message, codec) for message in found)
    shown = output.rows("message", columns_of(codec), rows, empty="no message has this key")
    return FINE if shown else PROBLEM
