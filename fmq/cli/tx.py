"""`fmq tx`: list the undecided transactions, and decide one in its producer's place."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import fmq
from fmq.cli.arguments import seconds, text, words
from fmq.cli.codes import ERROR, FINE, PROBLEM
from fmq.cli.messages import body_of, body_row, value_row
from fmq.cli.output import Column, Output, Row, note
from fmq.cli.person import person
from fmq.cli.place import check_no_address, reading, served, writing
from fmq.cli.resolve_option import add_resolve, databases_in
from fmq.codecs.body_fields import as_text
from fmq.engines.read_only_engine import undecided_on_the_disk
from fmq.errors import BadOption
from fmq.findings.body_values import codec_of
from fmq.findings.bound import bound_said
from fmq.findings.prepared import prepared_messages
from fmq.findings.text import counted, duration, exact, plain, preview, size, span
from fmq.findings.visit import visit
from fmq.recovery.walk import Walk
from fmq.store.bytes.kinds import Prepare, Run

MESSAGES_SHOWN = 20
LOOK_SECONDS = 0.05  # between two looks for an answer


def add_to(verbs: Any, common: argparse.ArgumentParser) -> None:
    parser = verbs.add_parser(
        "tx", help="list, show, ask about and decide prepared transactions", description=__doc__
    )
    actions = parser.add_subparsers(title="actions", required=True, metavar="ACTION")
    listing = actions.add_parser("list", parents=[common], help="those that are undecided")
    listing.add_argument("dir", metavar="DIR")
    listing.set_defaults(run=run_list)
    showing = actions.add_parser("show", parents=[common], help="one of them, or its outcome")
    showing.add_argument("dir", metavar="DIR")
    showing.add_argument("tx_id", type=text, metavar="ID", help="the id of the transaction")
    showing.set_defaults(run=run_show)
    asking = actions.add_parser(
        "ask", parents=[common], help="have its checker, or its producer's database, asked now"
    )
    asking.add_argument("dir", metavar="DIR")
    asking.add_argument(
        "tx_id", type=text, nargs="?", metavar="ID", help="the id; not needed with --resolve"
    )
    add_resolve(asking, "about all that its producer has left undecided, and do as it says")
    asking.add_argument(
        "--wait", type=seconds, default=5.0, metavar="SECONDS", help="for an answer; 5 by default"
    )
    asking.set_defaults(run=run_ask)
    deciding = actions.add_parser("decide", parents=[common], help="commit it or roll it back")
    deciding.add_argument("dir", metavar="DIR")
    deciding.add_argument("tx_id", type=text, metavar="ID", help="the id of the transaction")
    deciding.add_argument(
        "decision",
        choices=("commit", "rollback", "commit_without_lost"),
        help="commit_without_lost: what is not damaged of it",
    )
    deciding.add_argument(
        "--reason", required=True, type=words, metavar="TEXT", help="kept in the journal"
    )
    deciding.add_argument(
        "--by", type=text, metavar="NAME", help="who decides; by default who you are here"
    )
    deciding.add_argument(
        "--seal", type=text, help="decide only the transaction that has this seal"
    )
    deciding.add_argument(
        "--force",
        action="store_true",
        help="also if it is bound to a database, which alone knows how it ended",
    )
    deciding.set_defaults(run=run_decide)


def run_list(args: argparse.Namespace, output: Output) -> int:
    with reading(args.dir) as engine:
        proven = engine.undecided()
        rows = [undecided_row(tx, is_proven=True) for tx in proven]
        behind = []
        if isinstance(engine, fmq.ReadOnlyEngine):
            known = {tx.tx_id for tx in proven}
            behind = [tx for tx in undecided_on_the_disk(engine) if tx.tx_id not in known]
            rows += [undecided_row(tx, is_proven=False) for tx in behind]
        output.rows("undecided", UNDECIDED, rows, empty="nothing is undecided")
    if behind:
        note(
            f"{counted(len(behind), 'transaction')} on the disk, and not proven durable yet: the "
            "engine that has the directory open, or whoever opens it for writing next, settles "
            "that."
        )
    return FINE


def run_show(args: argparse.Namespace, output: Output) -> int:
    with reading(args.dir) as engine:
        try:
            outcome = engine.outcome(args.tx_id)
        except fmq.errors.UnknownTransaction:
            note_what_is_not_shown(args.dir, engine)
            raise
        show_outcome(output, outcome)
        if outcome.state == "undecided":
            tx = next((tx for tx in engine.undecided() if tx.tx_id == args.tx_id), None)
            if tx is not None:
                _show_messages(engine, args.dir, tx, output)
    return FINE


def run_ask(args: argparse.Namespace, output: Output) -> int:
    if args.resolve:
        return _ask_databases(args, output)
    if args.tx_id is None:
        raise BadOption(
            "fmq tx ask: name a transaction, whose checker is asked, or databases by --resolve. "
            "Nothing was asked."
        )
    check_no_address(args.dir)
    with visit(args.dir):
        engine = served(args.dir)
    if engine is None:
        note(
            f"no process serves {args.dir}, so there is no checker to ask. Open it in the program "
            "that has the checker, or ask its producer's database by --resolve "
            "PRODUCER=sqlite:///shop.db, or decide by `fmq tx decide`. Nothing was changed."
        )
        return ERROR
    with engine:
        before = _undecided_of(engine, args.tx_id)
        if before is not None:
            with suppress(fmq.UnknownTransaction):  # the transaction was decided just now
                engine.feedback.resume(args.tx_id)
        deadline = time.monotonic() + args.wait
        while (now := _undecided_of(engine, args.tx_id)) is not None and before is not None:
            has_answered = now.answers > before.answers
            if has_answered or time.monotonic() > deadline:
                producer = plain(now.producer or "a producer without a name")
                said = (
                    "its checker does not know: it answered unknown"
                    if has_answered
                    else f"no checker of {producer} answered in {args.wait:g} s: no process that "
                    "is connected has one, or it fails or is slow"
                )
                row = {"tx_id": now.tx_id, "answer": "unknown" if has_answered else None}
                title = f"{now.tx_id}: still undecided"
                output.facts("asked", row | {"text": said}, ASKED, title=title)
                return PROBLEM
            time.sleep(LOOK_SECONDS)
        show_outcome(output, engine.outcome(args.tx_id))
    return FINE


def _ask_databases(args: argparse.Namespace, output: Output) -> int:
    """Ask the databases of --resolve, once, and show what became of what was undecided."""
    databases = databases_in(args.resolve)
    with writing(args.dir) as engine:
        meant = [tx.tx_id for tx in engine.undecided() if tx.producer in databases]
        if args.tx_id is not None and args.tx_id not in meant:
            outcome = engine.outcome(args.tx_id)
            show_outcome(output, outcome)
            return FINE if outcome.state != "undecided" else _not_asked(outcome)
    with writing(args.dir, resolve=databases) as engine:
        engine.settle(timeout=args.wait)
        rows = [outcome_row(engine.outcome(tx_id)) for tx_id in meant]
        trouble = engine.stats().trouble
    output.rows("asked", OUTCOMES, rows, empty="nothing of these producers is undecided")
    left = sum(row["state"] == "undecided" for row in rows)
    if left:
        why = trouble or "they are not bound, so no database knows them: `fmq tx decide` does"
        note(f"{counted(left, 'transaction')} still undecided, and not changed: {why}")
    return PROBLEM if left else FINE


def _not_asked(outcome: fmq.Outcome) -> int:
    note(
        f"{plain(outcome.tx_id)} is of {plain(outcome.producer or 'a producer without a name')}, "
        "and --resolve names no database of that. Nothing was asked."
    )
    return ERROR


def _undecided_of(engine: fmq.AnyEngine, tx_id: str) -> fmq.UndecidedTransaction | None:
    return next((tx for tx in engine.undecided() if tx.tx_id == tx_id), None)


def run_decide(args: argparse.Namespace, output: Output) -> int:
    by = args.by or person()
    with writing(args.dir) as engine:
        tx = None if args.force else _undecided_of(engine, args.tx_id)
        if tx is not None and tx.bound:
            note(bound_said(args.dir, tx))
            return ERROR
        outcome = engine.decide(
            args.tx_id, args.decision, reason=args.reason, decided_by=by, seal=args.seal
        )
    try:
        show_outcome(output, outcome)
        sys.stdout.flush()
    except OSError:
        note(
            f"transaction {args.tx_id!r} is {outcome.state}, and durably so; only to show it failed"
        )
        raise
    return FINE


def note_what_is_not_shown(
    path: str,
    engine: fmq.ReadOnlyEngine | fmq.RemoteEngine,
    kind: type[Prepare] | type[Run] = Prepare,
) -> None:
    """Print a note about prepared transactions, or runs of messages, beyond what is proven durable.

    If there is damage, print none: the engine has raised it before. A process that serves the
    directory knows all appends.
    """
    if isinstance(engine, fmq.RemoteEngine):
        return
    with visit(path) as directory:
        walk = Walk(directory, engine.visible_to)
        behind = sum(isinstance(record, kind) for append in walk for record in append)
    if behind:
        what = "prepared transaction" if kind is Prepare else "append"
        note(
            f"{counted(behind, what)} behind position {engine.visible_to} not shown, as it may not "
            "be durable yet: the engine that has the directory open, or whoever opens it for "
            "writing next, settles that."
        )


# --- rows ----------------------------------------------------------------------------------------


def undecided_row(tx: fmq.UndecidedTransaction, *, is_proven: bool = True) -> Row:
    """Return an undecided transaction as a row, with its age, and whether it is proven durable."""
    age = datetime.now(UTC) - tx.prepared_at
    return asdict(tx) | {"age_seconds": round(age.total_seconds(), 3), "proven": is_proven}


def outcome_row(outcome: fmq.Outcome) -> Row:
    """Return an outcome as a row, and its receipts as rows."""
    return asdict(outcome) | {"receipts": [each._asdict() for each in outcome.receipts]}


def show_outcome(output: Output, outcome: fmq.Outcome) -> None:
    """Print what became of a transaction, and the places of its messages."""
    row = outcome_row(outcome)
    output.facts("outcome", row, OUTCOME, title=f"{outcome.tx_id}: {outcome.state}")
    if outcome.receipts:
        output.rows("receipt", RECEIPT, row["receipts"], title="published")


def _show_messages(
    engine: fmq.AnyEngine, path: str, tx: fmq.UndecidedTransaction, output: Output
) -> None:
    """Print the messages that a commit would publish, for the person who decides."""
    codecs = {topic: codec_of(engine, topic) for topic in tx.topics}
    found = _messages(path, tx.position)
    rows = [_message_row(row.pop("body"), row, codecs.get(row["topic"])) for row in found]
    shown = rows[:MESSAGES_SHOWN]
    output.rows("message", MESSAGE, shown, title="waiting to be published")
    if len(rows) > len(shown):
        note(f"{counted(len(rows) - len(shown), 'more message')}")


def _message_row(body: bytes, row: dict[str, Any], codec: fmq.TopicCodec | None) -> Row:
    return row | body_row(body) | value_row(body, codec)


def _messages(path: str, position: int) -> Iterator[dict[str, Any]]:
    with visit(path) as directory:
        yield from prepared_messages(directory, position)


def _answered(row: Row) -> str:
    """Return what checkers have said of an undecided transaction."""
    said = f"unknown {row['answers']}×" if row["answers"] else "no answer"
    return ", ".join(filter(None, (said, "parked" if row["parked"] else "")))


def _remarks(row: Row) -> str:
    said = ("bound" if row["bound"] else "", "" if row["proven"] else "not proven durable")
    return ", ".join(filter(None, said))


def _body(row: Row) -> str:
    """Return the fields of a body whose topic has a codec, or else its bytes."""
    value = row.get("value")
    if not isinstance(value, dict):
        return preview(body_of(row))
    return ", ".join(f"{name}: {as_text(each)}" for name, each in value.items())


UNDECIDED = (
    Column("tx_id", "transaction", style="bold", copied=True),
    Column("producer", "producer", copied=True),
    Column("prepared_at", "prepared (UTC)", optional=True),
    Column("age_seconds", "waits", right=True, show=duration),
    Column("messages", "messages", right=True),
    Column("bytes", "size", right=True, show=size),
    Column("topics", "topics", folds=True),
    Column("", "checker", of_row=_answered, optional=True),
    Column("", "", of_row=_remarks),
    Column("position", "position", right=True, show=exact, optional=True),
)
OUTCOMES = (
    Column("tx_id", "transaction", style="bold", copied=True),
    Column("state", "state"),
    Column("decided_by", "decided by"),
    Column("messages", "messages", right=True),
)
ASKED = (Column("text", "answer", folds=True),)
OUTCOME = (
    Column("state", "state", style="bold"),
    Column("producer", "producer"),
    Column("prepared_at", "prepared (UTC)"),
    Column("decided_at", "decided (UTC)"),
    Column("decided_by", "decided by"),
    Column("reason", "reason"),
    Column("messages", "messages"),
    Column("bytes", "size", show=size),
    Column("seal", "seal"),
    Column("position", "position", show=exact),
)
RECEIPT = (
    Column("", "queue", of_row=lambda row: f"{plain(row['topic'])}/{row['queue']}", copied=True),
    Column(
        "",
        "offset",
        right=True,
        of_row=lambda row: span(row["offset"], row["offset"] + row["count"]),
    ),
    Column("count", "count", right=True),
    Column("position", "position", right=True, show=exact),
)
MESSAGE = (
    Column("", "queue", of_row=lambda row: f"{plain(row['topic'])}/{row['queue']}", copied=True),
    Column("key", "key", copied=True),
    Column("tag", "tag", copied=True),
    Column("size", "size", right=True, show=size),
    Column("", "body", of_row=_body, folds=True),
)
