"""The numbers of an engine as text, in version 0.0.4 of Prometheus' format.

It takes looks that any program may take, and keeps nothing from one to the next: Prometheus makes
the rates. docs/metrics.md names each metric.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime

import fmq

Labels = dict[str, str]
Sample = tuple[Labels, float | None]
# The buckets that are shown end with these powers of two of nanoseconds: 8 us to 137 s.
FIRST_BUCKET, LAST_BUCKET = 13, 37


def exposition(engine: fmq.AnyEngine) -> str:
    """Return the numbers of `engine` as text. Raises the errors of the engine's calls, such as
    Closed.
    """
    stats = engine.stats()
    lines = [*_of_journal(stats), *_of_transactions(engine, stats), *_of_groups(engine, stats)]
    return "\n".join(lines) + "\n"


def _of_journal(stats: fmq.Stats) -> Iterator[str]:
    counts = stats.counts
    yield from gauge("healthy", "1 while the engine takes calls.", stats.failure is None)
    yield from gauge("trouble", "1 while a chore has to be tried again.", stats.trouble is not None)
    yield from counter("journal_position_bytes", "Bytes that were ever written.", stats.position)
    size = stats.position - stats.first_position
    yield from gauge("journal_bytes", "Bytes that retention has not dropped.", size)
    yield from gauge("journal_segments", "Files of the journal.", stats.segments)
    yield from gauge("disk_free_bytes", "What the file system would store.", stats.free_bytes)
    yield from gauge("retention_holders", "What keeps the next segment.", len(stats.kept_by))
    yield from gauge("messages", "Messages that are kept.", stats.messages)
    yield from gauge("delayed_messages", "Messages that wait for their time.", stats.delayed)
    if counts is not None:
        opened = counts.opened_at.timestamp()
        yield from gauge("opened_timestamp_seconds", "When the engine was opened.", opened)
        sent = [({"topic": topic}, number) for topic, number in counts.sent.items()]
        yield from family("messages_sent_total", "counter", "Messages that were published.", sent)
        yield from histogram("write_seconds", "Writes, with their syncs.", [({}, counts.written)])


def _of_transactions(engine: fmq.AnyEngine, stats: fmq.Stats) -> Iterator[str]:
    counts = stats.counts
    if counts is not None:
        yield from counter("commits", "Transactions that were committed.", counts.commits)
        yield from counter("rollbacks", "Prepared ones that were rolled back.", counts.rollbacks)
        yield from counter("questions", "Questions to checkers.", counts.questions)
        yield from counter("answers", "Answers of checkers.", counts.answers)
    undecided = engine.undecided()
    now = datetime.now(UTC)
    ages = [(now - each.prepared_at).total_seconds() for each in undecided]
    yield from gauge("undecided_transactions", "Prepared and not decided.", len(undecided))
    yield from gauge("undecided_oldest_seconds", "Age of the oldest.", max(ages, default=0.0))
    parked = sum(each.parked for each in undecided)
    yield from gauge("undecided_parked", "Those that wait for a person.", parked)


def _of_groups(engine: fmq.AnyEngine, stats: fmq.Stats) -> Iterator[str]:
    infos: dict[tuple[str, str], list[fmq.GroupInfo]] = {}
    for info in engine.groups():
        infos.setdefault((info.group, info.topic), []).append(info)
    topics = [({"group": group, "topic": topic}, found) for (group, topic), found in infos.items()]
    firsts = [(labels, found[0]) for labels, found in topics]
    unread = [(labels, sum(each.unread for each in found)) for labels, found in topics]
    yield from family("group_unread", "gauge", "Messages that are not acked.", unread)
    behind = [(labels, max(each.behind_seconds for each in found)) for labels, found in topics]
    yield from family("group_behind_seconds", "gauge", "Age of the oldest of them.", behind)
    for name, text in (
        ("lost", "Messages that retention has taken before their ack."),
        ("expired", "Messages that had expired."),
        ("skipped", "Messages that a person has passed over."),
    ):
        numbers = [(labels, float(getattr(info, name))) for labels, info in firsts]
        yield from family(f"messages_{name}_total", "counter", text, numbers)
    paused = [(labels, info.paused is not None) for labels, info in firsts]
    yield from family("group_paused", "gauge", "1 while it is handed nothing.", paused)
    limits = [(labels, info.limit) for labels, info in firsts if info.limit is not None]
    at_once = [(labels, limit.concurrency) for labels, limit in limits]
    yield from family("group_limit", "gauge", "The most that it may have in hand.", at_once)
    rates = [(labels, limit.rate) for labels, limit in limits]
    yield from family("group_limit_per_second", "gauge", "The most a second.", rates)
    dead = {info.group: info.dead_letters for _, info in firsts}
    letters = [({"group": group}, number) for group, number in dead.items()]
    yield from family("dead_letters", "gauge", "Messages that it has given up.", letters)
    yield from _of_members(engine, [*dead])
    yield from _of_counts(stats)


def _of_members(engine: fmq.AnyEngine, groups: list[str]) -> Iterator[str]:
    members: dict[str, list[fmq.MemberInfo]] = {}
    for group in groups:
        with suppress(fmq.UnknownGroup):  # the group was deleted meanwhile
            members[group] = engine.group(group).members()
    many = [({"group": group}, len(found)) for group, found in members.items()]
    yield from family("group_members", "gauge", "Members that are alive.", many)
    silent = [
        ({"group": group}, max((each.seen_seconds for each in found), default=0.0))
        for group, found in members.items()
    ]
    text = "For how long one of them has made no call."
    yield from family("group_silent_seconds", "gauge", text, silent)
    yield from gauge("clients", "Clients that are connected.", len(engine.clients()))


def _of_counts(stats: fmq.Stats) -> Iterator[str]:
    groups = {} if stats.counts is None else stats.counts.groups
    for name, text in (
        ("attempts", "Messages that were handed out."),
        ("retries", "Those that were not handed out for the first time."),
        ("failures", "Attempts that were given back."),
        ("rejected", "Messages that became dead letters."),
    ):
        numbers = [({"group": group}, float(getattr(of, name))) for group, of in groups.items()]
        yield from family(f"{name}_total", "counter", text, numbers)
    acked = [
        ({"group": group, "topic": topic}, number)
        for group, of in groups.items()
        for topic, number in of.acked.items()
    ]
    yield from family("messages_acked_total", "counter", "Messages that it is done with.", acked)
    for name, text in (
        ("handed_over", "From the send to the first attempt."),
        ("handled", "From the poll to the ack."),
    ):
        times = [({"group": group}, getattr(of, name)) for group, of in groups.items()]
        yield from histogram(f"{name}_seconds", text, times)


# --- the format -----------------------------------------------------------------------------------


def gauge(name: str, text: str, value: float | None) -> Iterator[str]:
    """Yield the lines of one number, none if it is not known."""
    return family(name, "gauge", text, [({}, value)])


def counter(name: str, text: str, value: float) -> Iterator[str]:
    """Yield the lines of one number that only grows."""
    return family(f"{name}_total", "counter", text, [({}, value)])


def head(name: str, kind: str, text: str) -> Iterator[str]:
    """Yield the lines that say what a metric is."""
    yield f"# HELP fmq_{name} {text}"
    yield f"# TYPE fmq_{name} {kind}"


def family(name: str, kind: str, text: str, samples: Iterable[Sample]) -> Iterator[str]:
    """Yield the lines of a number for each of some labels."""
    yield from head(name, kind, text)
    for labels, value in samples:
        if value is not None:
            yield line(name, labels, value)


def histogram(name: str, text: str, of: Iterable[tuple[Labels, fmq.Times]]) -> Iterator[str]:
    """Yield the lines of times for each of some labels. There is no sum of them: fmq has none."""
    yield from head(name, "histogram", text)
    for labels, times in of:
        below = sum(times.buckets[:FIRST_BUCKET])
        for i in range(FIRST_BUCKET, LAST_BUCKET + 1):
            below += times.buckets[i]
            yield line(f"{name}_bucket", {**labels, "le": repr((1 << i) / 1e9)}, below)
        yield line(f"{name}_bucket", {**labels, "le": "+Inf"}, times.count)
        yield line(f"{name}_count", labels, times.count)


def line(name: str, labels: Labels, value: float) -> str:
    """Return one line of the text. No character in a name can end its label."""
    said = ",".join(f'{label}="{escaped(text)}"' for label, text in labels.items())
    return f"fmq_{name}{f'{{{said}}}' if said else ''} {float(value)!r}"


def escaped(text: str) -> str:
    """Return the value of a label as it stands between its quotes."""
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
