"""`fmq move`: move a store into a home, or out of it. Its data comes along.

`fmq move DIR HOME` puts the journal into an empty home, reads it again and compares it. DIR is a
cache of the home then. `fmq move HOME DIR` takes the home over, and makes DIR a store of its own;
the home says where its data went, and opens no more. Nothing may have DIR open. A move that was
interrupted goes on when it is called again.
"""

from __future__ import annotations

import argparse
from typing import Any

from fmq.arguments.path import without_secrets
from fmq.basics.clock import SystemClock
from fmq.cli.codes import FINE
from fmq.cli.output import Column, Output
from fmq.errors import StorageError, UsageError
from fmq.findings.text import size


def add_to(verbs: Any, common: argparse.ArgumentParser) -> None:
    """Add the verb to the command line."""
    parser = verbs.add_parser(
        "move",
        parents=[common],
        help="move a store into a home, or out of it",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("source", metavar="FROM", help="a directory, or the address of a home")
    parser.add_argument("destination", metavar="TO", help="the other one")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace, output: Output) -> int:
    # Imported here, as few commands have to do with a home.
    from fmq.engines.home_moves import move_in, move_out
    from fmq.home.home_addresses import is_home

    source, destination = args.source, args.destination
    if is_home(source) == is_home(destination):
        named = " ".join(map(without_secrets, (source, destination)))
        raise UsageError(
            f"fmq move {named}: one of the two is a directory, and the other one the address of a "
            "home, such as s3://bucket/shop. Nothing was moved."
        )
    shown = without_secrets(source), without_secrets(destination)
    move = move_out if is_home(source) else move_in
    try:
        moved = move(source, destination, SystemClock())
    except OSError as failed:
        raise StorageError(
            f"fmq move {' '.join(shown)}: {failed}. Nothing was lost. Put that right, and run it "
            "again: it goes on where it was."
        ) from failed
    facts = {"source": shown[0], "destination": shown[1], "bytes": moved}
    output.facts("move", facts, MOVE, title=f"{shown[0]} was moved to {shown[1]}")
    return FINE


MOVE = (Column("bytes", "moved and verified", show=size),)
