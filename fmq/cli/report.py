"""`fmq report`: a page with pictures of what a journal has done, and the numbers of it.

It counts the records that retention has left, without an engine, and beside one that runs. PAGE is
one file of HTML, without scripts. Without PAGE it prints the numbers alone. `half_decided_seconds`
is how long half of the prepared transactions waited at most until they were committed; null: there
were none. It needs the extra `arrow`.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import fmq
from fmq.basics.clock import SystemClock, as_datetime
from fmq.cli.codes import FINE
from fmq.cli.output import Column, Output
from fmq.findings.text import duration, size
from fmq.findings.visit import visit


def add_to(verbs: Any, common: argparse.ArgumentParser) -> None:
    parser = verbs.add_parser(
        "report", parents=[common], help="what a journal has done, as a page", description=__doc__
    )
    parser.add_argument("dir", metavar="DIR")
    parser.add_argument("page", metavar="PAGE", nargs="?", help="the file to write, as report.html")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace, output: Output) -> int:
    try:  # imported here: it takes long
        from fmq.report.numbers_of_journal import report_of
        from fmq.report.report_page import page_of
    except ImportError as error:
        raise fmq.ExtraMissing("fmq report", str(error.name), "arrow") from error

    with visit(args.dir):
        report = report_of(args.dir)
    if args.page is not None:
        now = as_datetime(SystemClock.time_us())
        Path(args.page).write_text(page_of(report, now), encoding="utf-8")
    row = {
        "page": args.page,
        "start": report.start,
        "end": report.end,
        "messages": sum(each.total for each in report.sent.values()),
        "bytes": report.grows.total,
        "committed": report.states["committed"],
        "rolled_back": report.states["rolled back"],
        "undecided": report.states["undecided"],
        "half_decided_seconds": report.took_seconds.get(0.5),
    }
    output.facts("report", row, REPORT, title=args.dir)
    rows = [{"topic": name, "messages": each.total} for name, each in report.sent.items()]
    output.rows("topic", TOPICS, rows, title="published")
    rows = [
        {
            "group": name,
            "acked": report.acked[name].total if name in report.acked else 0,
            "dead": report.dead[name].total if name in report.dead else 0,
        }
        for name in sorted({*report.acked, *report.dead})
    ]
    output.rows("group", GROUPS, rows, title="groups")
    return FINE


REPORT = (
    Column("page", "page"),
    Column("start", "from (UTC)"),
    Column("end", "to (UTC)"),
    Column("messages", "messages"),
    Column("bytes", "journal", show=size),
    Column("committed", "committed"),
    Column("rolled_back", "rolled back"),
    Column("undecided", "undecided"),
    Column("half_decided_seconds", "half were decided within", show=duration),
)
TOPICS = (
    Column("topic", "topic", style="bold", copied=True),
    Column("messages", "messages", right=True),
)
GROUPS = (
    Column("group", "group", style="bold", copied=True),
    Column("acked", "done with", right=True),
    Column("dead", "gave up", right=True),
)
