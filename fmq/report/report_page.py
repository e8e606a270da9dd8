"""A report as one file of HTML: no script, nothing to load, readable without a network."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from importlib.resources import files

from fmq.dash.frame import facts, table
from fmq.dash.markup import Child, Markup, join, tag
from fmq.dash.sparkline import sparkline
from fmq.findings.text import duration, moment, plain, size
from fmq.report.numbers_of_journal import Curve, JournalReport


def page_of(report: JournalReport, made: datetime) -> str:
    """Return the page. `made` is now."""
    style = files("fmq.dash").joinpath("static", "dash.css").read_text()
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        tag("title", f"fmq: {report.path}"),
        tag("style", Markup(style)),
    )
    body = tag("body", tag("main", tag("h1", report.path), _parts(report, made), id="page"))
    return f'<!doctype html>\n<html lang="en">{head}{body}</html>\n'


def _parts(report: JournalReport, made: datetime) -> Markup:
    if report.start is None or report.end is None:
        return tag("p", "The journal has no records.")
    span = f"From {moment(report.start)} to {moment(report.end)} UTC"
    step = duration(report.width_seconds)
    return join(
        tag("p", f"{span}, each point of a curve is {step}. Made at {moment(made)} UTC."),
        tag("p", "What retention has dropped is not in it.", class_="empty"),
        facts(_facts(report)),
        _curves(report),
        _each("Topics", "topic", "messages", report.sent),
        _each("Groups", "group", "done with", report.acked),
        table(
            ("group", "reason", "messages#"),
            [(group, why or "none given", many) for (group, why), many in _most(report)],
            "No group has given up a message.",
            title="Dead letters",
        ),
        _transactions(report),
    )


def _facts(report: JournalReport) -> Iterable[tuple[str, Child]]:
    states = report.states
    yield "messages", _total(report.sent)
    yield "journal", size(report.grows.total)
    yield "done with, all groups", _total(report.acked)
    yield "dead letters", _total(report.dead)
    yield "transactions committed", states["committed"]
    yield "rolled back", states["rolled back"]
    yield "undecided", states["undecided"]
    for share, seconds in report.took_seconds.items():
        said = "the slowest" if share == 1 else f"{share:.0%} of the prepared"
        yield f"{said} committed within", duration(seconds)


def _total(curves: dict[str, Curve]) -> int:
    return sum(each.total for each in curves.values())


def _sum(curves: dict[str, Curve]) -> list[float]:
    return [sum(each) for each in zip(*(each.values for each in curves.values()), strict=True)]


def _curves(report: JournalReport) -> Markup:
    shown = (
        ("messages published", _sum(report.sent)),
        ("messages that groups are done with", _sum(report.acked)),
        ("dead letters", _sum(report.dead)),
        ("bytes of the journal", report.grows.values),
    )
    figures = [
        tag(
            "figure",
            sparkline(title, values, wide=True),
            tag("figcaption", f"{title}, at most {max(values):,.0f} in one span"),
        )
        for title, values in shown
        if values
    ]
    return tag("div", figures, class_="curves")


def _each(title: str, name: str, counts: str, curves: dict[str, Curve]) -> Markup:
    most = sorted(curves.items(), key=lambda each: -each[1].total)
    return table(
        (name, f"{counts}#", "when"),
        [(each, curve.total, sparkline(plain(each), curve.values)) for each, curve in most],
        "There are none.",
        title=title,
    )


def _most(report: JournalReport) -> list[tuple[tuple[str, str], int]]:
    return report.reasons.most_common(20)


def _transactions(report: JournalReport) -> Markup:
    return table(
        ("transaction", "state", "producer", "prepared", "took#", "messages#", "decided by"),
        [
            (
                row["tx_id"],
                row["state"],
                row["producer"],
                moment(row["prepared"]),
                None if row["duration_us"] is None else duration(row["duration_us"] / 1e6),
                row["messages"],
                row["decided_by"],
            )
            for row in report.slowest
        ],
        "No transaction was prepared.",
        title="Undecided transactions, and those that took longest",
    )
