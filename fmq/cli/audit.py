"""`fmq audit`: compare a table of a lake with the journals that were delivered into it.

Up to the position that the table names, it must have each message that the journals show, once and
with all its values; and nothing behind it. What is wrong is listed, message by message, and the
exit code is 1. Engines and deliveries may go on meanwhile. Nothing is written.

`fmq audit DIR --between IN OUT` looks instead whether what jobs with a mark, such as Spark's, have
made of the topic IN is in OUT once. With `--by key` each message of IN has to be in OUT once.
"""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, Any

import fmq
from fmq.cli.arguments import text
from fmq.cli.codes import FINE, PROBLEM
from fmq.cli.lake_arguments import add_table
from fmq.cli.output import Column, Output, note
from fmq.cli.place import reading
from fmq.cli.table_failures import failures_told, lacks
from fmq.findings.text import exact

if TYPE_CHECKING:
    from fmq.lake import AuditProgress, LakeAudit, TopicAudit


def add_to(verbs: Any, common: argparse.ArgumentParser) -> None:
    parser = verbs.add_parser(
        "audit",
        parents=[common],
        help="prove that a table of a lake has each message once",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_table(parser, url="where `fmq deliver` has put the table", required=False)
    parser.add_argument(
        "--lake", type=text, metavar="URL", help="the same, in place of URL behind DIR"
    )
    parser.add_argument(
        "--between", nargs=2, type=text, metavar=("IN", "OUT"), help="topics of one DIR"
    )
    parser.add_argument(
        "--by",
        choices=("key", "tag", "message_id", "body"),
        help="what a message of IN and the one made of it have in common",
    )
    parser.set_defaults(run=run, usage_error=parser.error)


def run(args: argparse.Namespace, output: Output) -> int:
    if args.between is not None:
        return _run_between(args, output)
    *dirs, url = [*args.dirs, args.lake] if args.lake is not None else args.dirs
    if args.to is None or not dirs:
        args.usage_error("name DIR, URL and --to, or --between")
    try:
        from fmq.lake import audit
    except ImportError as error:
        raise lacks("fmq audit", error, args.to) from error
    with output.progress() as show, failures_told(url, show, "Nothing was written.") as told:

        def tell(progress: AuditProgress) -> None:
            told(progress._asdict())

        seen = audit(dirs, url, to=args.to, options=dict(args.options), progress=tell)
    verdict = "has each message once" if seen.ok else "is not what the journals show"
    return _told(output, seen, AUDIT, f"{url}: {verdict}")


def _run_between(args: argparse.Namespace, output: Output) -> int:
    if len(args.dirs) > 1 or args.to is not None or args.lake is not None:
        args.usage_error("--between is about one DIR, and no table")
    try:
        from fmq.lake import audit_between
    except ImportError as error:
        raise lacks("fmq audit", error, args.to) from error
    source, target = args.between
    where = args.dirs[0]
    if os.path.isdir(where):  # else it is a pattern, or an address, which is not read twice
        with reading(where) as engine:
            for topic in (target, *([source] if args.by else [])):
                if not engine.queues(topic):  # a wrong name must not look like a proof
                    raise fmq.errors.UnknownTopic(topic)
    seen = audit_between(where, source, target, by=args.by)
    verdict = "there once" if seen.ok else "not there once"
    return _told(output, seen, BETWEEN, f"{source} in {target}: {verdict}")


def _told(
    output: Output, seen: LakeAudit | TopicAudit, columns: tuple[Column, ...], title: str
) -> int:
    facts = {"ok": seen.ok, **seen._asdict()}
    findings = [finding._asdict() for finding in facts.pop("findings")]
    output.facts("audit", facts, columns, title=title)
    if seen.ok:
        return FINE
    output.rows("finding", FINDINGS, findings, title="what is wrong")
    if seen.wrong > len(findings):
        note(f"only the first {len(findings):,} of {seen.wrong:,} findings are listed")
    return PROBLEM


BETWEEN = (
    Column("rows", "written by jobs with a mark", show=exact),
    Column("jobs", "jobs", show=exact),
    Column("others", "written otherwise, so not looked at", show=exact),
    Column("waiting", "not there yet", show=exact),
    Column("wrong", "wrong", show=exact),
)
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
