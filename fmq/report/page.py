"""A report as one page of HTML: no script, nothing to load, readable without a network."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape

from fmq.cli.text import counted, moment, plain, size
from fmq.report.chart import COLOURS, Series, columns, legend
from fmq.report.numbers import (
    LATENCY_STEPS,
    SECOND,
    WIDTHS_US,
    Numbers,
    Steps,
    TopicNumbers,
    latency_us,
    steps_between,
)
from fmq.report.style import STYLE

DAY_US = 86_400 * SECOND
TICKS_MAX = 9


def page_of(numbers: Numbers) -> str:
    """The whole page."""
    title = f"fmq: {numbers.path}"
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body><main>",
        _head(numbers),
        _cards(numbers),
        _throughput(numbers),
        _latency(numbers),
        _undecided(numbers),
        _biggest(numbers),
        _groups(numbers),
        "</main></body></html>",
    ]
    return "\n".join(parts) + "\n"


def _head(numbers: Numbers) -> str:
    steps = numbers.steps
    span = "No messages yet."
    if steps.number:
        first, last = moment(steps.time(0))[:19], moment(steps.time(steps.number))[:19]
        span = f"From {first} to {last} UTC, in steps of {duration(steps.width_us)}."
    now = moment(datetime.now(UTC))[:19]
    return (
        f"<header><h1>{escape(plain(numbers.path))}</h1>"
        f"<p>{span} What retention has dropped is not in here. Made {now} UTC.</p></header>"
    )


def _cards(numbers: Numbers) -> str:
    half = numbers.quantiles_us.get("half")
    each = {
        "messages": f"{numbers.messages:,}",
        "bytes in their bodies": size(numbers.bytes),
        "topics": f"{numbers.topics_in_all:,}",
        "transactions in one phase": f"{numbers.one_phase:,}",
        "in two phases, committed": f"{numbers.committed:,}",
        "rolled back": f"{numbers.rolled_back:,}",
        "undecided": f"{numbers.undecided_now:,}",
        "half are decided within": "–" if half is None else duration(half),
    }
    cards = (f"<div><b>{value}</b><span>{name}</span></div>" for name, value in each.items())
    return f'<section class="cards">{"".join(cards)}</section>'


def _throughput(numbers: Numbers) -> str:
    if not numbers.topics:
        return _section("Throughput", "There are no messages.")
    labels, ticks = times(numbers.steps), round_times(numbers.steps)
    names = [plain(topic.name) for topic in numbers.topics]
    of_messages = [Series(name, topic.messages) for name, topic in _named(numbers.topics)]
    of_bytes = [Series(name, topic.bytes) for name, topic in _named(numbers.topics)]
    table = _table(
        ("topic", "messages", "bytes", "each"),
        (
            (name, f"{sum(topic.messages):,}", size(sum(topic.bytes)), _each(topic))
            for name, topic in _named(numbers.topics)
        ),
    )
    step = duration(numbers.steps.width_us)
    return _section(
        "Throughput",
        f"Messages that became visible, and bytes of their bodies, in each {step}.",
        legend(names),
        "<h3>messages</h3>",
        columns(of_messages, labels, ticks, number),
        "<h3>bytes</h3>",
        columns(of_bytes, labels, ticks, lambda value: size(int(value)), factors=(2,)),
        table,
    )


def _named(topics: Iterable[TopicNumbers]) -> Iterable[tuple[str, TopicNumbers]]:
    return ((plain(topic.name), topic) for topic in topics)


def _each(topic: TopicNumbers) -> str:
    return size(sum(topic.bytes) // max(sum(topic.messages), 1))


def _latency(numbers: Numbers) -> str:
    if not numbers.latency:
        return _section("From prepared to committed", "No prepared transaction was committed yet.")
    steps = steps_between(list(numbers.latency))
    series = Series("transactions", [numbers.latency.get(step, 0) for step in steps])
    labels = [duration(latency_us(step)) for step in steps]
    ticks = [i for i, step in enumerate(steps) if step % LATENCY_STEPS == 0] or [0]
    said = (
        f"<b>{duration(us)}</b> for {name if name != 'all' else 'the slowest'}"
        for name, us in numbers.quantiles_us.items()
    )
    return _section(
        "From prepared to committed",
        f"How long the {counted(numbers.committed, 'transaction')} in two phases took, until it "
        "was known that the database had committed. "
        f"At most: {', '.join(said)}. {numbers.undecided_now:,} still undecided.",
        columns([series], labels, ticks, number),
    )


def _undecided(numbers: Numbers) -> str:
    if not any(numbers.undecided):
        return _section("Undecided", "At the end of no step was a transaction undecided.")
    series = Series("undecided", numbers.undecided)
    return _section(
        "Undecided",
        "Prepared transactions that waited for their decision, at the end of each step.",
        columns(
            [series],
            times(numbers.steps),
            round_times(numbers.steps),
            number,
            gap=0,
            colours=COLOURS[1:2],
        ),
    )


def _biggest(numbers: Numbers) -> str:
    if not numbers.biggest:
        return ""
    rows = (
        (
            row["tx_id"],
            row["producer"] or "",
            row["state"],
            f"{row['messages']:,}",
            size(row["bytes"]),
            "" if row["duration_us"] is None else duration(row["duration_us"]),
        )
        for row in numbers.biggest
    )
    names = ("transaction", "producer", "state", "messages", "bytes", "took")
    return _section("The biggest transactions", "", _table(names, rows, texts=3))


def _groups(numbers: Numbers) -> str:
    if not numbers.groups:
        return _section("Groups", "No group of consumers has acked anything.")
    most = max(1, *(group.unread for group in numbers.groups))
    rows = (
        (
            group.group,
            f"{group.topic}/{group.queue}",
            f"{group.acked_below:,}",
            f"{group.unread:,}",
            Bar(group.unread / most),
        )
        for group in sorted(numbers.groups, key=lambda group: -group.unread)
    )
    names = ("group", "queue", "acked below", "unread", "")
    return _section(
        "Groups",
        "How far each group of consumers lags behind.",
        _table(names, rows, texts=2),
    )


class Bar(str):
    """A cell that shows a share of the most."""

    __slots__ = ()

    def __new__(cls, share: float) -> Bar:
        return super().__new__(cls, f'<i class="bar" style="width:{share * 100:.1f}%"></i>')


def _section(title: str, text: str, *parts: str) -> str:
    paragraph = f"<p>{text}</p>" if text else ""
    return f"<section><h2>{title}</h2>{paragraph}{''.join(parts)}</section>"


def _table(names: Sequence[str], rows: Iterable[Sequence[str]], texts: int = 1) -> str:
    """`texts` is how many columns, from the left, are no numbers."""
    head = "".join(f"<th{_right(i, texts)}>{name}</th>" for i, name in enumerate(names))
    body = "".join(
        "<tr>"
        + "".join(
            f"<td{_right(i, texts)}>{cell if isinstance(cell, Bar) else escape(plain(cell))}</td>"
            for i, cell in enumerate(row)
        )
        + "</tr>"
        for row in rows
    )
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="wide">{table}</div>'


def _right(column: int, texts: int) -> str:
    return "" if column < texts else ' class="n"'


def number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:,.1f}"


def duration(us: float) -> str:
    """To two or three digits, in the unit that suits."""
    for unit, size_us in (("d", DAY_US), ("h", 3600 * SECOND), ("min", 60 * SECOND), ("s", SECOND)):
        if us >= size_us:
            return f"{us / size_us:.3g} {unit}"
    return f"{us / 1000:.3g} ms" if us >= 1000 else f"{us:.3g} µs"


def times(steps: Steps) -> list[str]:
    """Return when each step begins, as short as the steps can be told apart."""
    span = steps.number * steps.width_us
    if span > 3 * DAY_US:
        how = "%m-%d" if steps.width_us >= DAY_US else "%m-%d %H:%M"
    else:
        how = "%H:%M" if steps.width_us >= 60 * SECOND else "%H:%M:%S"
    labels = [steps.time(step).strftime(how) for step in range(steps.number)]
    if steps.width_us >= SECOND:
        return labels
    return [
        f"{label}.{steps.time(step).microsecond // 1000:03d}" for step, label in enumerate(labels)
    ]


def round_times(steps: Steps) -> list[int]:
    """Return a few steps that begin at round times."""
    for apart in WIDTHS_US:
        found = [i for i in range(steps.number) if _begins_at(steps, i) % apart == 0]
        if len(found) <= TICKS_MAX:
            break
    return found or [0]


def _begins_at(steps: Steps, step: int) -> int:
    return steps.start_us + step * steps.width_us
