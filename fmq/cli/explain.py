"""`fmq explain`: print the records of one transaction, what its checkers answered, and who decided
what, why and when.

The records are those of the journal. Questions are in no record, so how often one was answered is
what the process that serves the directory has counted since it was opened.
"""

from __future__ import annotations

import argparse
import shlex
from datetime import UTC, datetime
from typing import Any

import fmq
from fmq.cli.arguments import text
from fmq.cli.codes import FINE
from fmq.cli.output import Column, Output, Row
from fmq.cli.place import reading
from fmq.cli.tx import note_what_is_not_shown
from fmq.findings.bound import ask_its_database
from fmq.findings.story import questions, steps
from fmq.findings.text import exact, plain
from fmq.findings.visit import visit


def add_to(verbs: Any, common: argparse.ArgumentParser) -> None:
    parser = verbs.add_parser(
        "explain", parents=[common], help="the story of one transaction", description=__doc__
    )
    parser.add_argument("dir", metavar="DIR")
    parser.add_argument("tx_id", type=text, metavar="TX", help="the id of the transaction")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace, output: Output) -> int:
    with reading(args.dir) as engine:
        try:
            outcome = engine.outcome(args.tx_id)
        except fmq.UnknownTransaction:
            note_what_is_not_shown(args.dir, engine)
            raise
        undecided, is_served = None, isinstance(engine, fmq.RemoteEngine)
        if outcome.state == "undecided":
            undecided = next((tx for tx in engine.undecided() if tx.tx_id == args.tx_id), None)
    with visit(args.dir) as directory:
        found = [*steps(directory, outcome, undecided)]
    found += questions(outcome, undecided, datetime.now(UTC))
    output.rows("step", STEPS, found, title=f"{plain(outcome.tx_id)}: {outcome.state}")
    if undecided is not None:
        decide = shlex.join(["fmq", "tx", "decide", args.dir, undecided.tx_id])
        ask = shlex.join(["fmq", "tx", "ask", args.dir, undecided.tx_id])
        rows: list[Row] = [
            {"run": f"{decide} {decision} --reason '...'", "why": why}
            for decision, why in (
                ("commit", "publishes it: be sure that its producer's own work is done"),
                (
                    "rollback",
                    "nobody ever sees it: be sure that its producer's work can no more be done",
                ),
            )
        ]
        if undecided.bound:
            why = "has its database decide, which alone knows: it is bound"
            rows = [{"run": ask_its_database(args.dir, undecided), "why": why}]
        elif is_served:
            why = "has its checker asked now, which may decide it"
            rows.insert(0, {"run": ask, "why": why})
        output.commands("next", rows)
    return FINE


STEPS = (
    Column("time", "time (UTC)", style="dim"),
    Column("position", "position", right=True, show=exact, copied=True),
    Column("kind", "record", style="cyan"),
    Column("text", "what happened", folds=True),
)
