"""The frame of each page, and what pages are made of: tables, facts, badges and links to acts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

import fmq
from fmq.dash.dash_acts import Act
from fmq.dash.dash_request import Query
from fmq.dash.dash_site import DashSite
from fmq.dash.markup import Child, DashLink, Markup, join, lines, link, tag
from fmq.findings.body_values import fields_of
from fmq.findings.text import brief, duration, laid_out, moment
from fmq.findings.verdict import BEHIND, PAUSED, STUCK, UNREAD

NAVIGATION = (
    ("./", "overview"),
    ("transactions", "transactions"),
    ("messages", "messages"),
    ("dead", "dead letters"),
    ("delayed", "delayed"),
    ("clients", "clients"),
    ("disk", "disk"),
    ("log", "action log"),
)
COLORS = {STUCK: "bad", UNREAD: "bad", BEHIND: "warn", PAUSED: "warn"}


class DashPage(NamedTuple):
    """What a page shows. `live` is replaced while the page is open, and `still` is not."""

    title: str
    live: Markup
    still: Markup = Markup("")


def document(site: DashSite, page: DashPage, here: str, live: DashLink | None) -> Markup:
    """Return a whole page. `here` is its name, and `live` where its live part comes from."""
    name = site.path
    navigation = [
        tag("a", said, href=link(to), aria_current="page" if to == here else None)
        for to, said in NAVIGATION
    ]
    return _document(
        f"{page.title} · fmq",
        tag(
            "header",
            tag("a", "Skip to the page", href=link("#page"), class_="skip"),
            tag("p", tag("strong", "fmq"), " ", tag("span", name, class_="path")),
            tag("nav", navigation, aria_label="pages"),
        ),
        tag(
            "main",
            tag("h1", page.title),
            tag("p", "", id="state", role="status", class_="state") if live else None,
            tag("div", page.live, id="live", data_from=live),
            page.still,
            id="page",
            tabindex="-1",
        ),
        tag(
            "footer",
            "All times are in UTC. ",
            "This page only looks." if site.read_only else None,
        ),
    )


def bare(title: str, *children: Child) -> Markup:
    """Return a page without navigation, such as the one that asks for the token."""
    return _document(f"{title} · fmq", tag("main", tag("h1", title), children, id="page"))


def _document(title: str, *body: Child) -> Markup:
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("title", title),
        Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Markup('<meta name="color-scheme" content="light dark">'),
        tag("link", rel="stylesheet", href=link("dash.css")),
        tag("link", rel="icon", href=link("dash.svg"), type="image/svg+xml"),
        tag("script", src=link("dash.js"), defer=True),
    )
    return join(Markup("<!doctype html>"), tag("html", head, tag("body", *body), lang="en"))


def act_form(act: Act, query: Query, token: str, site: DashSite) -> Markup:
    """Return what an act will do, and the form that does it. `token` is that of the form."""
    return join(
        tag("p", act.effect),
        tag("p", "Nothing takes it back.", class_="final") if act.is_final else None,
        tag(
            "form",
            tag("input", type="hidden", name="form", value=token),
            act.inputs,
            tag("label", "why ", tag("input", name="reason", required=True, autofocus=True)),
            tag("label", "you ", tag("input", name="by", value=site.person, required=True)),
            tag("button", act.button),
            " ",
            tag("a", "do nothing", href=act.back),
            method="post",
            action=link("act", **query),
            class_="ask tall",
        ),
    )


# --- parts ----------------------------------------------------------------------------------------


def table(
    columns: Sequence[str], rows: Iterable[Sequence[Child]], empty: str, *, title: str = ""
) -> Markup:
    """Return a table, or the text `empty` if it has no rows. A column whose name ends with "#" has
    numbers. On a narrow screen each row is a block, whose lines begin with the names of columns.
    """
    heading = tag("h2", title) if title else None
    made = [
        tag("tr", [_cell(name, cell) for name, cell in zip(columns, row, strict=True)])
        for row in rows
    ]
    if not made:
        return join(heading, tag("p", empty, class_="empty"))
    head = [
        tag("th", name.rstrip("#"), scope="col", class_="n" if name.endswith("#") else None)
        for name in columns
    ]
    parts = tag("thead", tag("tr", head)), tag("tbody", made)
    return join(heading, tag("div", tag("table", *parts), class_="scroll"))


def _cell(name: str, cell: Child) -> Markup:
    is_empty = cell is None or cell == "" or cell == []
    return tag(
        "td",
        tag("div", cell),
        data_label=name.rstrip("#"),
        class_=" ".join(filter(None, ("n" * name.endswith("#"), "none" * is_empty))) or None,
    )


def facts(rows: Iterable[tuple[str, Child]]) -> Markup:
    """Return pairs of a name and a value. Those without a value are left out."""
    shown = [
        tag("div", tag("dt", name), tag("dd", value))
        for name, value in rows
        if value not in (None, "", [])
    ]
    return tag("dl", shown, class_="facts")


def body_shown(body: bytes, codec: fmq.TopicCodec | None) -> Markup:
    """Return the fields of a body, as its codec says, or else its text."""
    fields = fields_of(body, codec)
    return tag("pre", lines(laid_out(body))) if fields is None else facts(fields.items())


def badge(state: str, text: str) -> Markup:
    """Return a verdict. Its words say all; the color only helps."""
    return tag("span", text, class_=f"badge {COLORS.get(state, 'good')}")


def edge(state: str) -> str:
    """Return the class that marks a sentence about a state."""
    return f"{COLORS.get(state, 'good')}-edge"


def said(text: str) -> Markup:
    """Return a sentence. Commands in it are between backticks."""
    parts = text.split("`")
    return join(tag("code", part) if number % 2 else part for number, part in enumerate(parts))


def ago(seconds: float | None) -> str:
    return "" if seconds is None else brief(seconds)


def when(site: DashSite, time: datetime | None) -> Child:
    """Return a time, and how long ago it was."""
    if time is None:
        return None
    seconds = (site.now - time).total_seconds()
    text = f"{duration(seconds)} ago" if seconds >= 0 else f"in {duration(-seconds)}"
    return tag("time", text, title=moment(time), datetime=time.isoformat())


def act(site: DashSite, does: str, says: str, **fields: object) -> Markup | None:
    """Return a link to the page that asks before it acts; None for readers who may only look."""
    if site.read_only:
        return None
    return tag("a", says, href=link("act", do=does, **fields), class_="act")


def pause_act(site: DashSite, pause: fmq.Pause | None, **of: str) -> Markup | None:
    """Return a link that pauses what is not paused, or that resumes what is."""
    what = "pause" if pause is None else "resume"
    return act(site, what, what, **of)


def acts(*links: Markup | None) -> Markup | None:
    """Return links to acts, side by side; None if there are none."""
    shown = [each for each in links if each is not None]
    return tag("span", shown, class_="acts") if shown else None
