"""`fmq verify`: find everything that is wrong in a directory at rest. It writes nothing."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

import fmq
from fmq.cli.backup import told
from fmq.cli.codes import FINE, PROBLEM
from fmq.cli.output import Column, Output, note
from fmq.findings.text import exact, size


def add_to(verbs: Any, common: argparse.ArgumentParser) -> None:
    parser = verbs.add_parser(
        "verify", parents=[common], help="prove a directory sound", description=__doc__
    )
    parser.add_argument("dir", metavar="DIR")
    parser.add_argument(
        "--sealed",
        action="store_true",
        help="only the segments that are full, also while an engine has the directory open",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace, output: Output) -> int:
    with output.progress() as show:
        report = fmq.check(args.dir, sealed=args.sealed, progress=told(show))
    facts = asdict(report)
    facts.pop("problems")  # each problem gets a line of its own below
    verdict = "sound" if report.ok else "not sound"
    output.facts("report", {"ok": report.ok, **facts}, REPORT, title=f"{args.dir}: {verdict}")
    if report.ok:
        if args.sealed and not report.segments:
            note(
                "nothing was checked, as no segment is full yet. `fmq backup`, and `fmq verify` of "
                "the backup, check all of it beside the engine"
            )
        return FINE
    rows = (
        {"file": problem.file, "position": problem.position, "reason": problem.what}
        for problem in report.problems
    )
    output.rows("problem", PROBLEMS, rows, title="problems")
    return PROBLEM


REPORT = (
    Column("segments", "segments"),
    Column("bytes", "journal", show=size),
    Column("topics", "topics"),
    Column("messages", "messages"),
    Column("undecided", "undecided"),
    Column(
        "tail_bytes",
        "unfinished",
        of_row=lambda row: (
            f"{size(row['tail_bytes'])} that nothing proves durable; recovery cuts them, "
            "and keeps a copy"
            if row["tail_bytes"]
            else ""
        ),
    ),
)
PROBLEMS = (
    Column("file", "file", style="bold"),
    Column("position", "position", right=True, show=exact),
    Column("reason", "what is wrong", style="red", folds=True),
)
