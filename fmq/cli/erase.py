"""`fmq erase`: erase one message, or all messages of a key, for good.

What they were is overwritten in every file of the directory: in the journal, in copies that a
transaction or a delay has made, and in dead letters. Each keeps its offset, and the journal records
that it was erased. Backups, exports and what consumers have taken are not reached. The whole
journal is read.
"""

from __future__ import annotations

import argparse
from typing import Any

from fmq.cli.arguments import text
from fmq.cli.codes import FINE
from fmq.cli.output import Column, Output
from fmq.cli.place import writing
from fmq.findings.text import exact


def add_to(verbs: Any, common: argparse.ArgumentParser) -> None:
    parser = verbs.add_parser(
        "erase",
        parents=[common],
        help="erase one message, or all of a key, for good",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("dir", metavar="DIR")
    parser.add_argument("topic", type=text, metavar="TOPIC")
    parser.add_argument("--queue", type=int, metavar="Q", help="where the one message is")
    parser.add_argument("--offset", type=int, metavar="N", help="its offset in the queue")
    parser.add_argument("--key", type=text, metavar="KEY", help="all messages that have it")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace, output: Output) -> int:
    with writing(args.dir) as engine:
        done = engine.erase(args.topic, args.queue, args.offset, key=args.key)
    output.facts("erased", done._asdict(), ERASED, title="erased")
    return FINE


ERASED = (
    Column("messages", "messages", show=exact),
    Column("records", "records overwritten", show=exact),
)
