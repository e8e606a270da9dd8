"""The pages about transactions: those that are undecided, and the story of one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import fmq
from fmq.dash.dash_request import Query
from fmq.dash.dash_site import DashSite
from fmq.dash.frame import DashPage, act, acts, body_shown, facts, table, when
from fmq.dash.markup import Child, Markup, join, link, tag
from fmq.findings.body_values import codec_of
from fmq.findings.prepared import prepared_messages
from fmq.findings.story import questions, steps
from fmq.findings.text import exact, plain, size

MESSAGES_SHOWN = 100


def transactions(site: DashSite, query: Query) -> DashPage:
    """Return the page with all undecided transactions, the oldest first."""
    undecided = site.engine.undecided()
    live = table(
        ("transaction", "producer", "prepared", "messages#", "size#", "topics", "checker", ""),
        [
            (
                tag("a", tx.tx_id, href=link("tx", id=tx.tx_id)),
                tx.producer,
                when(site, tx.prepared_at),
                tx.messages,
                size(tx.bytes),
                ", ".join(map(plain, tx.topics)),
                checker_said(tx),
                _acts(site, tx),
            )
            for tx in undecided
        ],
        "Nothing is undecided.",
    )
    return DashPage("Undecided transactions", live, _lookup())


def checker_said(tx: fmq.UndecidedTransaction) -> str:
    """Return what is known of the checker: its last answer, or that none came."""
    said = "no checker has answered"
    if tx.answers:
        said = f"its last answer was unknown, answer {tx.answers}"
    said = f"{said}; parked" if tx.parked else said
    return f"bound to its database; {said}" if tx.bound else said


def _acts(site: DashSite, tx: fmq.UndecidedTransaction) -> Markup | None:
    if tx.bound:  # its database alone knows
        return acts(act(site, "ask", "ask now", id=tx.tx_id))
    return acts(
        act(site, "ask", "ask now", id=tx.tx_id),
        act(site, "decide", "commit", id=tx.tx_id, decision="commit", seal=tx.seal),
        act(site, "decide", "roll back", id=tx.tx_id, decision="rollback", seal=tx.seal),
    )


def _lookup() -> Markup:
    return tag(
        "form",
        tag("label", "The story of one, also of one that is decided: its id"),
        tag("input", name="id", required=True, aria_label="id of a transaction"),
        tag("button", "show"),
        method="get",
        action=link("tx"),
        class_="ask",
    )


def story(site: DashSite, query: Query) -> DashPage:
    """Return the story of one transaction, as `fmq explain` tells it. Raises UnknownTransaction."""
    tx_id = query.get("id", "")
    outcome = site.engine.outcome(tx_id)
    undecided = None
    if outcome.state == "undecided":
        undecided = next((tx for tx in site.engine.undecided() if tx.tx_id == tx_id), None)
    with site.files() as directory:
        told = [] if directory is None else [*steps(directory, outcome, undecided)]
    told += questions(outcome, undecided, site.now)
    live = join(
        facts(_outcome(site, outcome)),
        table(
            ("time", "position#", "record", "what happened"),
            [
                (
                    when(site, row.get("time")),
                    exact(row["position"]) if "position" in row else None,
                    row.get("kind"),
                    row["text"],
                )
                for row in told
            ],
            "Nothing of it is left in the journal.",
            title="What happened",
        ),
        _elsewhere(site, "fmq explain DIR ID shows its records"),
    )
    still = Markup("") if undecided is None else _undecided(site, undecided, query)
    return DashPage(f"Transaction {plain(tx_id)}", live, still)


def _outcome(site: DashSite, outcome: fmq.Outcome) -> Iterator[tuple[str, Child]]:
    yield "state", outcome.state
    yield "producer", outcome.producer or "without a name"
    yield "prepared", when(site, outcome.prepared_at)
    yield "decided", when(site, outcome.decided_at)
    yield "decided by", outcome.decided_by
    yield "reason", outcome.reason
    yield "messages", outcome.messages
    yield "size", size(outcome.bytes)


def _elsewhere(site: DashSite, command: str) -> Markup | None:
    """Return a sentence about files that are on another machine."""
    if site.directory is not None:
        return None
    return tag("p", f"The files are on another machine: there {command}.", class_="empty")


def _undecided(site: DashSite, tx: fmq.UndecidedTransaction, query: Query) -> Markup:
    shows = query.get("bodies") == "1"
    codecs = {topic: codec_of(site.engine, topic) for topic in tx.topics if shows}
    with site.files() as directory:
        found = [] if directory is None else prepared_messages(directory, tx.position)
        rows = [
            (
                f"{plain(row['topic'])}/{row['queue']}",
                row["key"],
                row["tag"],
                size(row["size"]),
                body_shown(row["body"], codecs.get(row["topic"])) if shows else "hidden",
            )
            for row in islice(found, MESSAGES_SHOWN)
        ]
    ask = tag("a", "show bodies", href=link("tx", id=tx.tx_id, bodies=1), class_="act")
    return join(
        table(
            ("queue", "key", "tag", "size#", "body"),
            rows,
            "Its messages are in the files, which are on another machine.",
            title="What a commit would publish",
        ),
        tag("p", ask) if rows and not shows else None,
        tag("p", f"the first {MESSAGES_SHOWN}") if len(rows) < tx.messages and rows else None,
        tag("p", _acts(site, tx)),
    )
