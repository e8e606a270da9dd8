"""The numbers that an engine says of itself, each with a name and labels, in no format yet.

It takes looks that any program may take, and keeps nothing from one to the next: what reads the
numbers makes the rates. docs/metrics.md names each metric.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import NamedTuple

import fmq

Labels = dict[str, str]
GAUGE, COUNTER, HISTOGRAM = "gauge", "counter", "histogram"
TOTAL = "_total"
"""What the name of each counter ends with."""


class Metric(NamedTuple):
    """A number for each of some labels, or, for a histogram, how long something took."""

    name: str
    """Without the `fmq_` in front. The unit is its end: `_seconds`, `_bytes`, or none."""
    kind: str
    text: str
    """What it is, in one sentence."""
    numbers: Sequence[tuple[Labels, float]] = ()
    times: Sequence[tuple[Labels, fmq.Times]] = ()
    """Those of a histogram, which has no `numbers`."""
    since_opening: bool = True
    """Whether a counter begins with 0 when the engine is opened."""


class EngineNumbers(NamedTuple):
    """What one look at an engine has found."""

    opened_at: datetime | None
    """When the engine was opened; None if it only reads, and so counts nothing."""
    metrics: list[Metric]


def look(engine: fmq.AnyEngine) -> EngineNumbers:
    """Return the numbers of `engine`. Raises the errors of the engine's calls, such as Closed."""
    stats = engine.stats()
    counts = stats.counts
    metrics = [*_of_journal(stats), *_of_transactions(engine, stats), *_of_groups(engine, stats)]
    return EngineNumbers(None if counts is None else counts.opened_at, metrics)


def _of_journal(stats: fmq.Stats) -> Iterator[Metric]:
    counts = stats.counts
    yield _gauge("healthy", "1 while the engine takes calls.", stats.failure is None)
    yield _gauge("trouble", "1 while a chore has to be tried again.", stats.trouble is not None)
    written: list[tuple[Labels, float | None]] = [({}, stats.position)]
    name, text = f"journal_position_bytes{TOTAL}", "Bytes that were ever written."
    yield _family(name, COUNTER, text, written)._replace(since_opening=False)
    size = stats.position - stats.first_position
    yield _gauge("journal_bytes", "Bytes that retention has not dropped.", size)
    yield _gauge("journal_segments", "Files of the journal.", stats.segments)
    yield _gauge("disk_free_bytes", "What the file system would store.", stats.free_bytes)
    yield _gauge("retention_holders", "What keeps the next segment.", len(stats.kept_by))
    yield _gauge("messages", "Messages that are kept.", stats.messages)
    yield _gauge("delayed_messages", "Messages that wait for their time.", stats.delayed)
    if counts is not None:
        opened = counts.opened_at.timestamp()
        yield _gauge("opened_timestamp_seconds", "When the engine was opened.", opened)
        sent = [({"topic": topic}, number) for topic, number in counts.sent.items()]
        yield _family(f"messages_sent{TOTAL}", COUNTER, "Messages that were published.", sent)
        yield _histogram("write_seconds", "Writes, with their syncs.", [({}, counts.written)])


def _of_transactions(engine: fmq.AnyEngine, stats: fmq.Stats) -> Iterator[Metric]:
    counts = stats.counts
    if counts is not None:
        yield _counter("commits", "Transactions that were committed.", counts.commits)
        yield _counter("rollbacks", "Prepared ones that were rolled back.", counts.rollbacks)
        yield _counter("questions", "Questions to checkers.", counts.questions)
        yield _counter("answers", "Answers of checkers.", counts.answers)
    undecided = engine.undecided()
    now = datetime.now(UTC)
    ages = [(now - each.prepared_at).total_seconds() for each in undecided]
    yield _gauge("undecided_transactions", "Prepared and not decided.", len(undecided))
    yield _gauge("undecided_oldest_seconds", "Age of the oldest.", max(ages, default=0.0))
    parked = sum(each.parked for each in undecided)
    yield _gauge("undecided_parked", "Those that wait for a person.", parked)


def _of_groups(engine: fmq.AnyEngine, stats: fmq.Stats) -> Iterator[Metric]:
    infos: dict[tuple[str, str], list[fmq.GroupInfo]] = {}
    for info in engine.groups():
        infos.setdefault((info.group, info.topic), []).append(info)
    topics = [({"group": group, "topic": topic}, found) for (group, topic), found in infos.items()]
    firsts = [(labels, found[0]) for labels, found in topics]
    unread = [(labels, sum(each.unread for each in found)) for labels, found in topics]
    yield _family("group_unread", GAUGE, "Messages that are not acked.", unread)
    behind = [(labels, max(each.behind_seconds for each in found)) for labels, found in topics]
    yield _family("group_behind_seconds", GAUGE, "Age of the oldest of them.", behind)
    for name, text in (
        ("lost", "Messages that retention has taken before their ack."),
        ("expired", "Messages that had expired."),
        ("skipped", "Messages that a person has passed over."),
    ):
        numbers = [(labels, getattr(info, name)) for labels, info in firsts]
        found_of_all = _family(f"messages_{name}{TOTAL}", COUNTER, text, numbers)
        yield found_of_all._replace(since_opening=False)
    held = [(labels, sum(each.in_hand or 0 for each in found)) for labels, found in topics]
    yield _family("group_in_hand", GAUGE, "Those that a member or a transaction holds.", held)
    paused = [(labels, info.paused is not None) for labels, info in firsts]
    yield _family("group_paused", GAUGE, "1 while it is handed nothing.", paused)
    limits = [(labels, info.limit) for labels, info in firsts if info.limit is not None]
    at_once = [(labels, limit.concurrency) for labels, limit in limits]
    yield _family("group_limit", GAUGE, "The most that it may have in hand.", at_once)
    rates = [(labels, limit.rate) for labels, limit in limits]
    yield _family("group_limit_per_second", GAUGE, "The most a second.", rates)
    dead = {info.group: info.dead_letters for _, info in firsts}
    letters = [({"group": group}, number) for group, number in dead.items()]
    yield _family("dead_letters", GAUGE, "Messages that it has given up.", letters)
    yield from _of_members(engine, {info.group: info.members or 0 for _, info in firsts})
    yield from _of_counts(stats)


def _of_members(engine: fmq.AnyEngine, groups: dict[str, int]) -> Iterator[Metric]:
    many = [({"group": group}, number) for group, number in groups.items()]
    yield _family("group_members", GAUGE, "Members that are alive.", many)
    silent = []
    for group, number in groups.items():
        longest = 0.0
        if number:
            with suppress(fmq.UnknownGroup):  # the group was deleted meanwhile
                members = engine.group(group).members()
                longest = max((each.seen_seconds for each in members), default=0.0)
        silent.append(({"group": group}, longest))
    text = "For how long one of them has made no call."
    yield _family("group_silent_seconds", GAUGE, text, silent)
    yield _gauge("clients", "Clients that are connected.", len(engine.clients()))


def _of_counts(stats: fmq.Stats) -> Iterator[Metric]:
    groups = {} if stats.counts is None else stats.counts.groups
    for name, text in (
        ("attempts", "Messages that were handed out."),
        ("retries", "Those that were not handed out for the first time."),
        ("failures", "Attempts that were given back."),
        ("rejected", "Messages that became dead letters."),
    ):
        numbers = [({"group": group}, getattr(of, name)) for group, of in groups.items()]
        yield _family(f"{name}{TOTAL}", COUNTER, text, numbers)
    out = [
        ({"group": group, "why": why}, number)
        for group, of in groups.items()
        for why, number in of.out.items()
    ]
    text = "Members that went out of it, such as silent ones."
    yield _family(f"members_out{TOTAL}", COUNTER, text, out)
    acked = [
        ({"group": group, "topic": topic}, number)
        for group, of in groups.items()
        for topic, number in of.acked.items()
    ]
    yield _family(f"messages_acked{TOTAL}", COUNTER, "Messages that it is done with.", acked)
    for name, text in (
        ("handed_over", "From the send to the first attempt."),
        ("handled", "From the poll to the ack."),
    ):
        times = [({"group": group}, getattr(of, name)) for group, of in groups.items()]
        yield _histogram(f"{name}_seconds", text, times)


def _family(
    name: str, kind: str, text: str, found: Iterable[tuple[Labels, float | None]]
) -> Metric:
    """Return a number for each of some labels. Those that are not known are left out."""
    return Metric(name, kind, text, [(labels, each) for labels, each in found if each is not None])


def _gauge(name: str, text: str, value: float | None) -> Metric:
    return _family(name, GAUGE, text, [({}, value)])


def _counter(name: str, text: str, value: float) -> Metric:
    return _family(f"{name}{TOTAL}", COUNTER, text, [({}, value)])


def _histogram(name: str, text: str, times: list[tuple[Labels, fmq.Times]]) -> Metric:
    return Metric(name, HISTOGRAM, text, times=times)
