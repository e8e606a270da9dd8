"""`fmq home`: who owns a home, and how far it is.

It only looks: the owner goes on. With DIR it says as well how far the cache in this directory is
behind, which is what a machine with this directory would read to take over.
"""

from __future__ import annotations

import argparse
from typing import Any

from fmq.cli.codes import FINE
from fmq.cli.output import Column, Output
from fmq.findings.text import duration, exact, moment, size


def add_to(verbs: Any, common: argparse.ArgumentParser) -> None:
    parser = verbs.add_parser(
        "home",
        parents=[common],
        help="who owns a home, and how far it is",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("home", metavar="HOME", help="such as s3://bucket/shop, see docs/home.md")
    parser.add_argument("dir", metavar="DIR", nargs="?", help="a directory that is a cache of it")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace, output: Output) -> int:
    from fmq.home.home_look import look_at_home  # here, as no other verb needs it

    seen = look_at_home(args.home, args.dir)
    output.facts("home", seen._asdict(), HOME, title=seen.address)
    return FINE


HOME = (
    Column("owner", "owner", of_row=lambda row: f"process {row['pid']} on {row['host']}"),
    Column("since", "since", show=moment),
    Column("term", "machines that took over", show=exact),
    Column("position", "up to the position", show=exact),
    Column("segments", "segments", show=exact),
    Column("bytes", "with", show=size),
    Column("floor", "the floor", show=exact),
    Column("above_floor", "entries above it", show=exact),
    Column("lag_bytes", "with", show=size),
    Column("serves_at", "serves at"),
    Column("moved", "its data went to"),
    Column("beat", "last sign of life", show=moment),
    Column("beat_seconds", "that is so long ago", show=duration),
    Column("behind", "entries that DIR lacks", show=exact),
)
