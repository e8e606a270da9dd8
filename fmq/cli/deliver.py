"""`fmq deliver`: add what journals have to a table of a lake, each row once, on and on.

URL is a directory, or an address such as s3://bucket/messages that the format can write. Without a
table there, one is made. How far it has each journal lies in the table itself, in the commit of the
rows. So run it again, or on another machine when this one has died, and it goes on where the table
is; two at once double nothing. Several directories become one table, whose columns engine, host and
store tell them apart.

  delta    a Delta table
  iceberg  DIR/NAMESPACE.NAME, with a catalog in DIR/catalog.db, or catalog://CATALOG/NAMESPACE.NAME
           with one that pyiceberg is configured for
  parquet  a folder of files, on this machine

SIGTERM and Ctrl-C end it after the running commit. It holds nothing in the directories: retention
does not wait for it.
"""

from __future__ import annotations

import argparse
from contextlib import closing
from typing import TYPE_CHECKING, Any

from fmq.cli.arguments import count, seconds
from fmq.cli.codes import FINE
from fmq.cli.lake_arguments import add_table
from fmq.cli.named import object_at
from fmq.cli.output import Column, Output
from fmq.cli.signals import call_when_set, stopped_by_signals
from fmq.cli.table_failures import failures_told, lacks
from fmq.findings.text import exact, size

if TYPE_CHECKING:
    from fmq.lake import LakeCommit


def add_to(verbs: Any, common: argparse.ArgumentParser) -> None:
    parser = verbs.add_parser(
        "deliver",
        parents=[common],
        help="add what is new to a Delta or Iceberg table",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_table(parser, url="where the table is, or will be")
    parser.add_argument(
        "--view",
        default="messages",
        help="messages (the default: all that are visible), records, transactions (once they are "
        "decided), marks, acks, attempts or dead_letters",
    )
    parser.add_argument(
        "--columns", metavar="NAMES", help="with commas between them; all by default"
    )
    parser.add_argument(
        "--topics",
        metavar="NAMES",
        help="only messages of these topics, with commas between them; the table keeps the choice",
    )
    parser.add_argument(
        "--codec",
        metavar="CODEC",
        help="add the column `value`, made of bodies: `stored` for the fields that the codecs of "
        "--topics have, or PACKAGE:NAME for a schema of Arrow, if bodies are JSON, or for a "
        "function of messages",
    )
    parser.add_argument(
        "--every",
        type=seconds,
        default=10.0,
        metavar="SECONDS",
        help="when all is delivered, look again so much later; 10 by default",
    )
    parser.add_argument(
        "--rows",
        type=count,
        default=100_000,
        metavar="N",
        help="messages in a commit; 100000 by default. An append is never cut",
    )
    parser.add_argument(
        "--roll-after",
        type=seconds,
        default=0.0,
        metavar="SECONDS",
        help="let fewer messages wait so long for others, for larger files; by default they "
        "do not wait",
    )
    parser.add_argument(
        "--compact-after",
        type=count,
        default=0,
        metavar="N",
        help="merge the small files of a Delta or Iceberg table when there are so many, as 100; "
        "by default they stay",
    )
    parser.add_argument("--once", action="store_true", help="end when all is there that is now")
    parser.add_argument(
        "--on-gap",
        choices=("fail", "skip"),
        default="fail",
        help="when retention dropped what the table lacks: fail (the default), or go on behind it "
        "and say so",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace, output: Output) -> int:
    try:
        from fmq.lake import LakeDelivery, table_at, typed_by
        from fmq.lake.lake_delivery import schema_for
    except ImportError as error:
        raise lacks("fmq deliver", error, args.to) from error
    columns = None if args.columns is None else args.columns.split(",")
    topics = None if args.topics is None else args.topics.split(",")
    bodies = None if args.codec is None else typed_by(codec_named(args.codec), args.dirs, topics)
    rows = schema_for(args.view, columns, bodies)
    with (
        stopped_by_signals() as stop,
        output.progress(every_row=True) as show,
        failures_told(args.url, show, KEPT) as tell,
        closing(table_at(args.url, args.to, rows, dict(args.options), topics)) as table,
    ):

        def told(commit: LakeCommit) -> None:
            stats = delivery.stats()
            left = commit.behind - commit.bytes
            said = {"rows": stats.rows, "bytes": stats.bytes, "bytes_total": stats.bytes + left}
            tell({**said, "commits": stats.commits})

        delivery = LakeDelivery(
            args.dirs,
            table,
            view=args.view,
            columns=columns,
            topics=topics,
            bodies=bodies,
            every=args.every,
            rows=args.rows,
            roll_after=args.roll_after,
            compact_after=args.compact_after,
            on_gap=args.on_gap,
            progress=told,
        )
        call_when_set(stop, delivery.stop)
        delivery.run(once=args.once)
    output.facts("deliver", delivery.stats()._asdict(), DELIVER, title=f"delivered to {args.url}")
    return FINE


def codec_named(name: str) -> Any:
    """Return `stored`, or what a name such as shop.lake:decode says."""
    return object_at(name, "Nothing was written.") if ":" in name else name


KEPT = "What was committed is in the table, each row once, and nothing of another commit."
DELIVER = (
    Column("rows", "rows", show=exact),
    Column("commits", "in commits", show=exact),
    Column("bytes", "of journal", show=size),
    Column("refused", "commits refused", show=exact),
    Column("merged", "files merged", show=exact),
)
