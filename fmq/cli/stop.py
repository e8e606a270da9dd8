"""`fmq stop`: end the process that serves a directory, once clients have settled what they have.

The process takes nothing new, answers what it has taken, writes a checkpoint and closes. Clients
that go on calling wait for the next process, and those of fmq.connect(start=True) start one: end
them first if the directory is to stay closed. Ctrl-C ends the waiting; the process ends all the
same.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

import fmq
from fmq.cli.arguments import seconds
from fmq.cli.codes import FINE, PROBLEM
from fmq.cli.output import Column, Output


def add_to(verbs: Any, common: argparse.ArgumentParser) -> None:
    parser = verbs.add_parser(
        "stop",
        parents=[common],
        help="end the process that serves a directory",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("dir", metavar="DIR")
    parser.add_argument(
        "--timeout",
        type=seconds,
        default=10.0,
        metavar="SECONDS",
        help="how long clients may take to settle what they have in hand; 10 by default",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace, output: Output) -> int:
    stopped = fmq.stop(args.dir, timeout=args.timeout)
    if stopped.holder is None:
        title = f"{stopped.path}: no process had it open"
    elif stopped.is_clean:
        title = f"{stopped.path}: {stopped.holder} has closed it"
    else:
        title = f"{stopped.path}: {stopped.holder} was killed before it had closed it"
    output.facts("stop", asdict(stopped), STOP, title=title)
    return FINE if stopped.is_clean or stopped.holder is None else PROBLEM


STOP = (
    Column("holder", "had it open"),
    Column("is_clean", "closed with a checkpoint"),
)
