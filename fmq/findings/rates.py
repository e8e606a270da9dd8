"""What a journal and its groups do: two looks, an interval apart, and the rates between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import fmq
from fmq.basics.clock import Clock, SystemClock, as_datetime
from fmq.findings.text import duration, size

HOLDERS_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Sight:
    """What one look has found. The counts only grow, but for a group that is moved back."""

    at: float
    """Seconds of a clock that never goes back."""
    answer_seconds: float
    """How long the engine took to answer the first question."""
    stats: fmq.Stats
    ends: dict[str, int]
    """How many messages each topic has ever had."""
    infos: list[fmq.GroupInfo]
    oldest_undecided: datetime | None
    clients: int | None
    free_bytes: int | None
    options: fmq.Options
    now: datetime


def look(engine: fmq.AnyEngine, clock: Clock | None = None) -> Sight:
    """Look once."""
    clock = SystemClock() if clock is None else clock
    began = clock.monotonic()
    stats = engine.stats()
    at = clock.monotonic()
    ends: Counter[str] = Counter()
    for queue in engine.queues():
        ends[queue.topic] += queue.next
    infos = engine.groups()
    clients = None
    with suppress(fmq.ReadOnly):
        clients = len(engine.clients())
    undecided = engine.undecided()
    return Sight(
        at=at,
        answer_seconds=at - began,
        stats=stats,
        ends=dict(ends),
        infos=infos,
        oldest_undecided=min((tx.prepared_at for tx in undecided), default=None),
        clients=clients,
        free_bytes=stats.free_bytes,
        options=engine.options,
        now=as_datetime(clock.time_us()),
    )


def compared(before: Sight, after: Sight) -> list[dict[str, Any]]:
    """Return what happened between two looks: a row about the journal, and one for each group."""
    took = max(after.at - before.at, 1e-9)

    def rate(old: float, new: float) -> float:
        return round(max(new - old, 0) / took, 3)

    grows = rate(before.stats.position, after.stats.position)
    # Other programs fill the disk, too.
    falls = rate(-(before.free_bytes or 0), -(after.free_bytes or 0))
    fills = max(grows, falls)
    kept = after.stats.position - after.stats.first_position
    sent = sum(rate(before.ends.get(topic, 0), end) for topic, end in after.ends.items())
    oldest, options = after.oldest_undecided, after.options
    limit = options.retain_bytes
    # The limit of acked bytes counts only while there is no other limit.
    is_alone = limit is None and options.retain_seconds is None
    acked_limit = options.retain_acked_bytes if is_alone else None
    rows: list[dict[str, Any]] = [
        {
            "seconds": round(took, 3),
            "messages_per_second": round(sent, 3),
            "bytes_per_second": grows,
            "syncs_per_second": rate(before.stats.syncs, after.stats.syncs),
            "answer_ms": round(after.answer_seconds * 1000, 3),
            "undecided": after.stats.undecided,
            "undecided_seconds": None if oldest is None else (after.now - oldest).total_seconds(),
            "delayed": after.stats.delayed,
            "dead_letters": after.stats.dead_letters,
            "clients": after.clients,
            "journal_bytes": kept,
            "free_bytes": after.free_bytes,
            "free_falls_per_second": falls,
            "seconds_to_full": (after.free_bytes or 0) / fills if fills else None,
            "retain_bytes": limit,
            "retain_seconds": options.retain_seconds,
            "retain_acked_bytes": acked_limit,
            "seconds_to_retention": _until(limit or acked_limit, kept, grows),
            "kept_by": [*after.stats.kept_by],
            "unread_kept_for": _unread_kept_for(after),
            "trouble": after.stats.failure or after.stats.trouble,
        }
    ]
    acked, groups = _acked(before.infos), dict[str, list[fmq.GroupInfo]]()
    for info in after.infos:
        groups.setdefault(info.group, []).append(info)
    now_acked = _acked(after.infos)
    for name, infos in groups.items():
        topics = {info.topic for info in infos}
        arrives = sum(rate(before.ends.get(each, 0), after.ends.get(each, 0)) for each in topics)
        acks = rate(acked.get(name, 0), now_acked[name])
        lag, gains = sum(info.unread for info in infos), acks - arrives
        in_hand = [info.in_hand for info in infos if info.in_hand is not None]
        rows.append(
            {
                "group": name,
                "lag": lag,
                "behind_seconds": max(info.behind_seconds for info in infos),
                "arrive_per_second": round(arrives, 3),
                "acks_per_second": acks,
                "seconds_to_catch_up": lag / gains if lag and gains > 0 else None,
                "in_hand": sum(in_hand) if in_hand else None,
                "members": infos[0].members,
                "paused": any(info.paused for info in infos),
            }
        )
    return rows


def _acked(infos: list[fmq.GroupInfo]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for info in infos:
        found[info.group] += info.acked_below + info.acked_beyond
    return dict(found)


def _unread_kept_for(sight: Sight) -> list[str]:
    """Return the groups whose unread messages no limit of retention drops."""
    options = sight.options
    if options.keep_unread or (options.retain_bytes is None and options.retain_seconds is None):
        return sorted({info.group for info in sight.infos if info.unread})
    return []


def _until(limit: int | None, there: int, grows: float) -> float | None:
    """Return in how many seconds the journal reaches its limit, at its rate; 0 if it has."""
    if limit is None or (there < limit and not grows):
        return None
    return max(limit - there, 0) / grows if grows else 0.0


def without_rates(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of `compared` as one look has it, that is without rates."""
    is_rate = ("_per_second", "seconds_to_full", "seconds_to_retention", "seconds_to_catch_up")
    return {name: None if name.endswith(is_rate) else value for name, value in row.items()}


# --- in words ------------------------------------------------------------------------------------


def rate_said(number: float | None) -> str:
    """Return a rate with its unit; a dash while there was only one look."""
    if number is None:
        return "–"
    return f"{number:,.0f}/s" if number >= 10 or not number else f"{number:.1f}/s"


def growth_said(number: float | None) -> str:
    """Return how fast something grows; a dash while there was only one look."""
    return "–" if number is None else f"{size(int(number))}/s"


def undecided_said(row: Mapping[str, Any]) -> str:
    """Return how many transactions are undecided, and for how long."""
    oldest = row["undecided_seconds"]
    return f"{row['undecided']}" + (
        "" if oldest is None else f", the oldest for {duration(oldest)}"
    )


def disk_said(row: Mapping[str, Any]) -> str:
    """Return how much room the journal takes, and when there will be none."""
    full, soon = row["seconds_to_full"], row["seconds_to_retention"]
    free = row["free_bytes"]
    said = f"{size(row['journal_bytes'])} of journal"
    said += "" if free is None else f", {size(free)} free"
    if full is None:
        return said
    if row["free_falls_per_second"] > row["bytes_per_second"]:
        falls = size(int(row["free_falls_per_second"]))
        said += f", which falls by {falls}/s, mostly by other files"
    said += f", full in {duration(full)} at this rate"
    if soon is None:
        return said
    if soon >= full:
        return f"{said}, before retention begins"
    if row["kept_by"] or row["unread_kept_for"]:
        return f"{said}, if retention has to wait until then"
    return f"{said}, but retention begins before that"


def retention_said(row: Mapping[str, Any]) -> str:
    """Return what retention drops, and when, or what it waits for."""
    if row["kept_by"]:
        return f"its limit is reached; kept by {_listed(row['kept_by'])}"
    soon = row["seconds_to_retention"]
    when = "" if soon is None else f", reached in {duration(soon)} at this rate"
    limits = []
    if row["retain_bytes"] is not None:
        limits.append(f"drops above {size(row['retain_bytes'])}{when}")
    if row["retain_seconds"] is not None:
        limits.append(f"drops what is older than {duration(row['retain_seconds'])}")
    if row["retain_acked_bytes"] is not None:
        limit = size(row["retain_acked_bytes"])
        limits.append(f"drops what every group has acked above {limit}{when}")
    groups = row["unread_kept_for"]
    if limits and groups:
        limits.append(f"messages not acked by {_in_words(groups)} stay until they are acked")
    if limits and row["undecided"]:
        limits.append("what came after an undecided transaction may stay until that is decided")
    return "; ".join(limits) or "drops nothing"


def catch_up_said(row: Mapping[str, Any]) -> str:
    """Return in how long a group has no lag any more, at its rate."""
    if not row["lag"]:
        return "now"
    if row["paused"]:
        return "paused"
    soon = row["seconds_to_catch_up"]
    return "never at this rate" if soon is None else duration(soon)


def _in_words(groups: list[str]) -> str:
    shown, more = groups[:HOLDERS_SHOWN], len(groups) - HOLDERS_SHOWN
    if more > 0:
        shown.append(f"{more} more")
    return " and ".join(filter(None, (", ".join(shown[:-1]), shown[-1])))


def _listed(holders: list[str]) -> str:
    more = len(holders) - HOLDERS_SHOWN
    said = ", and ".join(holders[:HOLDERS_SHOWN])
    return f"{said}, and {more} more" if more > 0 else said
