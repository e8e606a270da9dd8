"""`fmq ship`: copy a journal to another place on and on, beside its engine.

At any moment `fmq restore DEST NEW` makes a directory of it: all that was durable up to some
instant, each transaction as a whole. SIGTERM and Ctrl-C end it after what is durable by then. A
tool that is killed, or whose engine is, goes on where it was. Retention waits for it, also while it
does not run, until the journal is --keep-bytes ahead.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

import fmq
from fmq.cli.arguments import count, seconds
from fmq.cli.backup import told
from fmq.cli.codes import FINE
from fmq.cli.output import Column, Output, note
from fmq.cli.signals import stopped_by_signals
from fmq.copies import forget_shipping
from fmq.findings.text import exact, size


def add_to(verbs: Any, common: argparse.ArgumentParser) -> None:
    parser = verbs.add_parser(
        "ship",
        parents=[common],
        help="copy a journal to another place on and on",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("dir", metavar="DIR")
    parser.add_argument(
        "dest",
        metavar="DEST",
        help="a directory, such as one of another machine, or s3://bucket/shop",
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument(
        "--every", type=seconds, default=1.0, metavar="SECONDS", help="look so often; 1 by default"
    )
    how.add_argument("--once", action="store_true", help="end when all is there that is now")
    how.add_argument(
        "--forget",
        action="store_true",
        help="ship nothing, and let retention wait no more for DEST",
    )
    parser.add_argument(
        "--keep-bytes",
        type=count,
        default=1 << 30,
        metavar="BYTES",
        help="how far the journal may be ahead until retention goes on; 1 GiB by default",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace, output: Output) -> int:
    if args.forget:
        had = forget_shipping(args.dir, args.dest)
        note(f"retention waits no more for {args.dest}" if had else "retention did not wait for it")
        return FINE
    with stopped_by_signals() as stop, output.progress() as show:
        every = None if args.once else args.every
        tell = told(show)

        def until_stopped(done: int, total: int) -> None:
            tell(done, total)
            if stop.is_set() and done < total:
                raise KeyboardInterrupt  # do not ship the rest: a first run takes long

        how = {"stop": stop, "keep_bytes": args.keep_bytes, "progress": until_stopped}
        made = fmq.ship(args.dir, args.dest, every=every, **how)
    output.facts("ship", asdict(made), SHIP, title=f"{made.path}: can be restored")
    return FINE


SHIP = (
    Column("position", "up to the position", show=exact),
    Column("shipped_bytes", "shipped by this run", show=size),
    Column("rounds", "rounds"),
)
