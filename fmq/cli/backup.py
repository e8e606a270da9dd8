"""`fmq backup` and `fmq restore`: a journal in another directory, and a directory made of that.

A backup is made beside the engine, which goes on, and is the journal as it was at one instant. Each
segment that is copied is read once more, with all checksums. Run it again to add what is new: a
segment that is there is not copied again. A run that is killed leaves the backup from before; run
it again.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime
from typing import Any

import fmq
from fmq.cli.arguments import moment
from fmq.cli.codes import FINE, PROBLEM
from fmq.cli.output import Column, Output, Row, note
from fmq.findings.text import exact, size


def add_to(verbs: Any, common: argparse.ArgumentParser) -> None:
    form = argparse.RawDescriptionHelpFormatter
    parser = verbs.add_parser(
        "backup",
        parents=[common],
        help="copy a journal beside its engine",
        description=__doc__,
        formatter_class=form,
    )
    parser.add_argument("dir", metavar="DIR")
    parser.add_argument("dest", metavar="DEST", help="where the backup is, or will be")
    parser.set_defaults(run=run_backup)
    parser = verbs.add_parser(
        "restore",
        parents=[common],
        help="make a directory of a backup",
        description=__doc__,
        formatter_class=form,
    )
    parser.add_argument(
        "backup",
        metavar="BACKUP",
        help="what `fmq backup` or `fmq ship` has made: a directory, or s3://bucket/shop",
    )
    parser.add_argument("dir", metavar="NEW", help="a new or empty directory")
    parser.add_argument(
        "--to",
        type=position_or_moment,
        metavar="POSITION|TIME",
        help="only what was there then: a position in the journal, or a time such as "
        "2026-01-31T12:00:00, which is in UTC",
    )
    parser.set_defaults(run=run_restore)


def position_or_moment(word: str) -> int | datetime:
    """Return the position or the time that `word` names."""
    return int(word) if word.isdecimal() else moment(word)


def run_backup(args: argparse.Namespace, output: Output) -> int:
    with output.progress() as show:
        made = fmq.backup(args.dir, args.dest, progress=told(show))
    facts = asdict(made)
    facts.pop("problems")  # each problem gets a line of its own below
    title = f"{made.path}: {'whole' if not made.problems else 'as damaged as the journal'}"
    output.facts("backup", facts, BACKUP, title=title)
    if not made.problems:
        return FINE
    rows = ({"reason": problem} for problem in made.problems)
    output.rows("problem", PROBLEMS, rows, title="problems")
    return PROBLEM


def run_restore(args: argparse.Namespace, output: Output) -> int:
    with output.progress() as show:
        made = fmq.restore(args.backup, args.dir, to=args.to, progress=told(show))
    output.facts("restore", asdict(made), RESTORE, title=f"{made.path}: restored")
    note(
        "its last messages are shown once an engine has opened it: "
        f"python -c 'import fmq, sys; fmq.open(sys.argv[1]).close()' {shlex.quote(made.path)}"
    )
    return FINE


def told(show: Callable[[Row], None]) -> Callable[[int, int], None]:
    """Return a function that shows how many bytes are copied. The run goes on if that fails."""

    def tell(done: int, total: int) -> None:
        with suppress(OSError):
            show({"bytes": done, "bytes_total": total})

    return tell


RESTORE = (
    Column("segments", "segments"),
    Column("bytes", "journal", show=size),
    Column("position", "up to the position", show=exact),
)
BACKUP = (*RESTORE, Column("copied_bytes", "copied now", show=size))
PROBLEMS = (Column("reason", "what is wrong", style="red", folds=True),)
