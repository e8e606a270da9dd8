"""`fmq take-over`: take a home from its owner, because a person has decided so.

The owner acknowledges nothing more, and this process ends at once: a machine that stands by goes
on, or the next program that opens the home. DIR is a cache of the home, and may be empty; without
it the journal is read into a directory for this moment.
"""

from __future__ import annotations

import argparse
from contextlib import nullcontext
from tempfile import TemporaryDirectory
from typing import Any

from fmq.arguments.path import without_secrets
from fmq.basics.clock import SystemClock
from fmq.cli.codes import FINE
from fmq.cli.home import HOME
from fmq.cli.output import Output, note


def add_to(verbs: Any, common: argparse.ArgumentParser) -> None:
    """Add the verb to the command line."""
    parser = verbs.add_parser(
        "take-over",
        parents=[common],
        help="take a home from its owner",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("home", metavar="HOME", help="file:///mnt/shared/shop or s3://bucket/shop")
    parser.add_argument(
        "dir",
        metavar="DIR",
        nargs="?",
        help="a cache of it, or an empty directory; by default a temporary one, for all of it",
    )
    parser.add_argument(
        "--from-cache",
        action="store_true",
        help="give back to the home what it has lost and DIR has (HomeBehind)",
    )
    parser.set_defaults(run=run, usage_error=parser.error)


def run(args: argparse.Namespace, output: Output) -> int:
    # Imported here, as few commands have to do with a home.
    from fmq.engines.home_moves import move_in, take_over
    from fmq.home.home_look import look_at_home

    if args.from_cache:
        if args.dir is None:
            args.usage_error("--from-cache needs DIR, which has what the home has lost")
        given = move_in(args.dir, args.home, SystemClock(), of_cache=True)
        shown = without_secrets(args.home)
        note(f"{shown}: has got back {given:,} bytes, and was read again to verify them.")
    with nullcontext(args.dir) if args.dir else TemporaryDirectory(prefix="fmq-") as cache:
        take_over(args.home, cache, None, SystemClock())
    seen = look_at_home(args.home, args.dir)
    output.facts("home", seen._asdict(), HOME, title=seen.address)
    return FINE
