"""`fmq reconcile`: which transactions only the journal has, and which only the database that is
bound to it, after one of them was put back to an earlier time.

It compares the commits of the journal with the markers in the database's table fmq_tx. What is too
old to tell, because maintenance removes markers and retention drops segments, is counted apart. The
exit code is 1 if there is a difference, and 0 if none was found: a note says what could not be
compared. It changes nothing, and both may be in use.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import fmq
from fmq.cli.arguments import seconds, text
from fmq.cli.backup import told
from fmq.cli.codes import FINE, PROBLEM
from fmq.cli.output import Column, Output, note
from fmq.cli.tx import outcome_row
from fmq.findings.text import counted, plain, span


def add_to(verbs: Any, common: argparse.ArgumentParser) -> None:
    parser = verbs.add_parser(
        "reconcile",
        parents=[common],
        help="compare a journal with its bound database",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("dir", metavar="DIR")
    parser.add_argument(
        "database",
        type=text,
        metavar="DATABASE",
        help="its address, such as sqlite:///shop.db or postgresql://host/name",
    )
    parser.add_argument(
        "--kept",
        type=seconds,
        metavar="SECONDS",
        help="how long all programs certainly keep markers: 604800 unless one purges earlier; by "
        "default only the oldest marker proves it",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace, output: Output) -> int:
    with output.progress() as show:
        found = fmq.reconcile(args.dir, args.database, kept_seconds=args.kept, progress=told(show))
    counts = {"gone": len(found.gone), "lacking": len(found.lacking)}
    facts = {"ok": found.ok, **asdict(replace(found, gone=(), lacking=())), **counts}
    verdict = "both agree" if found.ok else "they differ"
    if found.ok and (found.unknown_transactions or found.unknown_markers):
        verdict = "both agree, as far as can be known"
        note(
            f"{counted(found.unknown_transactions, 'transaction')} of the journal and "
            f"{counted(found.unknown_markers, 'marker')} of the database could not be compared, "
            f"and {counted(found.agreed, 'transaction')} agreed. The exit code 0 says only that no "
            "difference was found."
        )
    output.facts("reconciliation", facts, FACTS, title=f"{args.dir}: {verdict}")
    if found.gone:
        title = "in the journal, and their rows are not in the database"
        output.rows("gone", GONE, map(outcome_row, found.gone), title=title)
    if found.lacking:
        title = "in the database, and their messages are not in the journal"
        output.rows("lacking", LACKING, map(asdict, found.lacking), title=title)
    return FINE if found.ok else PROBLEM


def _names(names: Sequence[str]) -> str:
    return ", ".join(plain(name or "(without a name)") for name in names)


def _places(receipts: Sequence[dict[str, Any]]) -> str:
    return ", ".join(
        f"{plain(each['topic'])}/{each['queue']} {_offsets(each)}".rstrip() for each in receipts
    )


def _offsets(receipt: dict[str, Any]) -> str:
    first = receipt["offset"]
    return "delayed" if first is None else span(first, first + receipt["count"])


FACTS = (
    Column("producers", "producers", show=_names),
    Column("other_producers", "not of this database", show=_names),
    Column("agreed", "on both sides"),
    Column("undecided", "undecided"),
    Column("undecided_elsewhere", "undecided, not of this database"),
    Column("gone", "rows are gone"),
    Column("lacking", "messages are lacking"),
    Column("unknown_transactions", "unknown, of the journal"),
    Column("unknown_markers", "unknown, of the database"),
    Column("markers_from", "markers known from (UTC)"),
    Column("journal_from", "journal kept from (UTC)"),
)
GONE = (
    Column("tx_id", "transaction", style="bold", copied=True),
    Column("producer", "producer"),
    Column("decided_at", "decided (UTC)"),
    Column("", "messages", of_row=lambda row: _places(row["receipts"]), folds=True),
)
LACKING = (
    Column("tx_id", "transaction", style="bold", copied=True),
    Column("marked_at", "marked (UTC)"),
    Column("journal", "in the journal"),
)
