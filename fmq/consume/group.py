"""What a program asks of one group: where it is, who is in it, and to move or delete it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Protocol

from fmq.consume.changing import EARLIEST, LATEST, At
from fmq.consume.sieve import text_of
from fmq.errors import BadOption
from fmq.filters import Filter
from fmq.results import GroupInfo, MemberInfo
from fmq.tx.names import check_count, check_text, check_time


class Changes(Protocol):
    """What moves and deletes groups, here or in another process."""

    def seek(self, group: str, topic: str, number: int | None, at: At) -> None:
        """Let `group` go on at `at`."""

    def skip(self, group: str, topic: str, number: int, offset: int, count: int) -> None:
        """Let `group` pass over messages."""

    def set_filter(self, group: str, topic: str, wanted: str) -> None:
        """Let `group` want other messages of `topic`."""

    def delete(self, group: str) -> None:
        """Delete `group`."""


class Group:
    """A group of an engine, made by `engine.group`."""

    def __init__(
        self,
        name: str,
        changes: Changes,
        infos: Callable[[str], list[GroupInfo]],
        members: Callable[[str], list[MemberInfo]],
    ) -> None:
        self._name = name
        self._changes = changes
        self._infos = infos
        self._members = members

    @property
    def name(self) -> str:
        return self._name

    def infos(self) -> list[GroupInfo]:
        """Return how far it is in each queue of its topics."""
        return self._infos(self._name)

    def members(self) -> list[MemberInfo]:
        """Return its members, with the queues that belong to each."""
        return self._members(self._name)

    def seek(
        self,
        topic: str,
        *,
        queue: int | None = None,
        offset: int | None = None,
        time: datetime | None = None,
        to: str | None = None,
    ) -> None:
        """Go on at `offset`, at the first message that is not older than `time`, or at `to`, which
        is "earliest" or "latest", in one queue of `topic` or in all.

        Acks from there on are taken back, and deliveries in hand raise LeaseLost. Raises
        StillUndecided while an undecided transaction acks messages there.
        """
        check_text("topic", topic)
        given: list[At] = []
        if offset is not None:
            given.append(check_count("offset", offset, 0))
        if time is not None:
            given.append(check_time("time", time))
        if to is not None:
            if not isinstance(to, str):
                raise TypeError(
                    f"to={to!r}: is {EARLIEST!r} or {LATEST!r}, not {type(to).__name__}. Nothing "
                    "was changed."
                )
            given.append(to)
        if len(given) != 1:
            raise BadOption(
                "seek takes one of offset=, time= and to=, as in "
                f"seek({topic!r}, to={EARLIEST!r}). Nothing was changed."
            )
        self._changes.seek(self._name, topic, queue, given[0])

    def skip(self, topic: str, queue: int, offset: int, *, count: int = 1) -> None:
        """Pass over `count` messages from `offset` on, such as damaged ones.

        They are counted in `skipped`, unless the group had acked them.
        """
        self._changes.skip(self._name, check_text("topic", topic), queue, offset, count)

    def set_filter(self, topic: str, wanted: Filter | None) -> None:
        """Let all its members want other messages of `topic` from now on; None: all.

        What was passed over before is not looked at again: `seek` goes back.
        """
        self._changes.set_filter(self._name, check_text("topic", topic), text_of(wanted))

    def delete(self) -> None:
        """Delete it in all its topics: nothing is kept for it any more.

        Its members get UnknownGroup. Raises StillUndecided while an undecided transaction acks
        messages for it.
        """
        self._changes.delete(self._name)

    def explain(self) -> str:
        """Return, as text, who reads what and why."""
        return explained(self._name, self.infos(), self.members())

    def __repr__(self) -> str:
        return f"<Group {self._name!r}>"


def explained(name: str, infos: list[GroupInfo], members: list[MemberInfo]) -> str:
    """Return a line for each topic, queue and member of a group."""
    lines = [f"group {name}"]
    strategy = members[0].strategy if members else None
    for topic in sorted({info.topic for info in infos} | {t for m in members for t in m.topics}):
        readers = [member for member in members if topic in member.topics]
        if not readers:
            why = "no member reads it now"
        elif strategy is None:
            why = f"{_names(readers)} compete for its messages"
        else:
            why = f"its queues are shared among {_names(readers)} by {strategy}"
        lines.append(f"  {topic}: {why}")
        for info in infos:
            if info.topic == topic:
                owners = [m.name for m in readers if (topic, info.queue) in m.owns]
                owner = f", {owners[0]}" if owners else ", nobody" if strategy else ""
                lines.append(f"    queue {info.queue}{owner}: {_progress(info)}")
    return "\n".join(lines)


def _names(members: list[MemberInfo]) -> str:
    return ", ".join(member.name for member in members)


def _progress(info: GroupInfo) -> str:
    parts = [f"acked below {info.acked_below}", f"{info.unread} unread"]
    if info.filter:
        parts[-1] += f", before its filter {info.filter}"
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
