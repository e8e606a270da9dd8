"""`fmq audit`: compare a table of a lake with the journals that were delivered into it.

Up to the position that the table names, it must have each message that the journals show, once and
with all its values; and nothing behind it. What is wrong is listed, message by message, and the
exit code is 1. Engines and deliveries may go on meanwhile. Nothing is written.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from fmq.cli.codes import ERROR, FINE, PROBLEM
from fmq.cli.lake_arguments import add_table
from fmq.cli.output import Column, Output, note
from fmq.findings.text import exact

if TYPE_CHECKING:
    from fmq.lake import AuditProgress


def add_to(verbs: Any, common: argparse.ArgumentParser) -> None:
    parser = verbs.add_parser(
        "audit",
        parents=[common],
        help="prove that a table of a lake has each message once",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_table(parser, url="where `fmq deliver` has put the table")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace, output: Output) -> int:
    try:
        from fmq.lake import audit
    except ImportError as error:
        note(str(error))
        return ERROR
    with output.progress() as show:

        def told(progress: AuditProgress) -> None:
            show(progress._asdict())

        seen = audit(args.dirs, args.url, to=args.to, options=dict(args.options), progress=told)
    facts = {"ok": seen.ok, **seen._asdict()}
    findings = [finding._asdict() for finding in facts.pop("findings")]
    verdict = "has each message once" if seen.ok else "is not what the journals show"
    output.facts("audit", facts, AUDIT, title=f"{args.url}: {verdict}")
    if seen.ok:
        return FINE
    output.rows("finding", FINDINGS, findings, title="what is wrong")
    if seen.wrong > len(findings):
        note(f"only the first {len(findings):,} of {seen.wrong:,} findings are listed")
    return PROBLEM


AUDIT = (
    Column("rows", "compared", show=exact),
    Column("transactions", "transactions", show=exact),
    Column("older", "dropped by retention, so not compared", show=exact),
    Column("others", "of other stores, so not compared", show=exact),
    Column("wrong", "wrong", show=exact),
)
FINDINGS = (
    Column("kind", "kind", style="bold"),
    Column("path", "directory", copied=True),
    Column("topic", "topic"),
    Column("queue", "queue", right=True),
    Column("offset", "offset", right=True, show=exact),
    Column("reason", "what is wrong", style="red", folds=True),
)
