"""A group as text for people: which member reads which queue, and why."""

from __future__ import annotations

from fmq.basics.clock import as_text
from fmq.basics.results import GroupInfo, Limit, MemberInfo, Pause

Passing = dict[tuple[str, int], tuple[int, int]]
"""By topic and queue: how many messages a filter was compared with, and how many of them pass."""


def explained(
    name: str, infos: list[GroupInfo], members: list[MemberInfo], passing: Passing
) -> str:
    """Return a line for each topic, queue and member of a group."""
    pauses = {info.topic: info.paused for info in infos if info.paused}
    of_group = next((each for each in pauses.values() if each.of == "group"), None)
    limit = next((info.limit for info in infos), None)
    lines = [f"group {name}{_paused(of_group)}{_limited(limit)}"]
    strategy = members[0].strategy if members else None
    for topic in sorted({info.topic for info in infos} | {t for m in members for t in m.topics}):
        readers = [member for member in members if topic in member.topics]
        if not readers:
            why = "no member reads it now"
        elif strategy is None:
            why = f"{_names(readers)} compete for its messages"
        else:
            why = f"its queues are shared among {_names(readers)} by {strategy}"
        lines.append(f"  {topic}: {why}{_paused(None if of_group else pauses.get(topic))}")
        for info in infos:
            if info.topic == topic:
                owners = [m.name for m in readers if (topic, info.queue) in m.owns]
                owner = f", {owners[0]}" if owners else ", nobody" if strategy else ""
                lines.append(f"    queue {info.queue}{owner}: {_progress(info, passing)}")
    return "\n".join(lines)


def _paused(pause: Pause | None) -> str:
    if pause is None:
        return ""
    why = f": {pause.reason}" if pause.reason else ""
    return f", paused since {as_text(pause.since)} by {pause.by}{why}"


def _limited(limit: Limit | None) -> str:
    if limit is None or limit.since is None:
        return ""
    why = f": {limit.reason}" if limit.reason else ""
    return f", limited: {limit.in_words()}, since {as_text(limit.since)} by {limit.by}{why}"


def _names(members: list[MemberInfo]) -> str:
    return ", ".join(member.name for member in members)


def _progress(info: GroupInfo, passing: Passing) -> str:
    parts = [f"acked below {info.acked_below}", f"{info.unread} unread"]
    rest = info.unread - info.replayed  # replayed messages pass any filter
    if info.filter and not rest:
        parts.append(f"filter {info.filter}")
    elif info.filter:
        looked, passed = passing.get((info.topic, info.queue), (0, 0))
        of = "of them" if looked >= rest else f"of the first {looked}"
        parts.append(f"{passed} {of} pass its filter {info.filter}")
    if info.replayed:
        parts.append(f"{info.replayed} of them replayed")
    if info.behind_seconds:
        parts.append(f"{info.behind_seconds:.1f} s behind")
    if info.lost:
        parts.append(f"{info.lost} lost to retention")
    if info.skipped:
        parts.append(f"{info.skipped} skipped")
    if info.dead_letters:
        parts.append(f"{info.dead_letters} dead letters")
    if info.expired:
        parts.append(f"{info.expired} expired")
    return ", ".join(parts)
