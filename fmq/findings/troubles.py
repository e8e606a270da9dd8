"""What needs a person: a line about each group, and about transactions, topics and retention.

`fmq why` and the first page of `fmq dash` show these lines. They ask an engine, and change nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from itertools import groupby
from operator import attrgetter
from typing import Any

import fmq
from fmq.basics.clock import Clock, SystemClock, as_datetime
from fmq.findings.text import counted, duration
from fmq.findings.verdict import PATIENCE_SECONDS, PROBLEMS, Seen, remarks, worst

HELD_MAX = 10_000  # how many ranges of a group are looked at


class AskedOnce:
    """What is the same for all groups, asked when it is first needed."""

    def __init__(self, engine: fmq.AnyEngine) -> None:
        self._engine = engine

    @cached_property
    def clients(self) -> list[fmq.ClientInfo]:
        return self._engine.clients()

    @cached_property
    def opened_at(self) -> datetime | None:
        counts = self._engine.stats().counts
        return None if counts is None else counts.opened_at


@dataclass(frozen=True, slots=True)
class Troubles:
    """Asks `engine`. `path` is what commands name, and `writer` the process that has the directory
    open, None if that is not known. A state that lasts longer than `patience` seconds needs a
    person.
    """

    engine: fmq.AnyEngine
    path: str
    writer: str | None
    patience: float = PATIENCE_SECONDS
    clock: Clock = field(default_factory=SystemClock)

    def seen(self, name: str) -> Seen:
        """Return what is known of a group. Raises UnknownGroup."""
        return self._seen(name, self.engine.group(name).infos(), AskedOnce(self.engine))

    def of_groups(self) -> Iterator[dict[str, Any]]:
        """Yield a row for each group."""
        asked = AskedOnce(self.engine)
        for name, infos in groupby(self.engine.groups(), key=attrgetter("group")):
            with suppress(fmq.UnknownGroup):  # the group was deleted meanwhile
                found = remarks(self._seen(name, [*infos], asked, is_brief=True))
                state = worst(found)
                row = _verdict(f"group {name}", state, found[0].text, state in PROBLEMS)
                yield row | {"group": name}

    def _seen(
        self, name: str, infos: list[fmq.GroupInfo], asked: AskedOnce, *, is_brief: bool = False
    ) -> Seen:
        """Return what is known of a group. If `is_brief`, what no sentence is about is not asked:
        a thousand groups take a second then.
        """
        now = as_datetime(self.clock.time_us())
        timeout = self.engine.options.member_timeout_seconds
        known = self.path, name, infos, None, None, self.writer, now, self.patience, timeout
        seen = Seen(*known)
        if is_brief and not seen.unread:
            return seen
        with suppress(fmq.ReadOnly):
            group = self.engine.group(name)
            held = group.in_hand(limit=HELD_MAX)
            has_none = is_brief and not infos[0].members
            members = [] if has_none else group.members()
            seen = replace(seen, members=members, held=held)
            if not (is_brief and members):
                seen = replace(seen, former=(*group.former_members(),))
            if not members:
                there = tuple(c for c in asked.clients if any(of == name for of, _ in c.members))
                seen = replace(seen, connected=there, opened_at=asked.opened_at)
        return seen

    def of_others(self) -> Iterator[dict[str, Any]]:
        """Yield a row for each thing besides groups that may need a person."""
        now = as_datetime(self.clock.time_us())
        if undecided := self.engine.undecided():
            oldest = min(undecided, key=lambda tx: tx.prepared_at)
            age = (now - oldest.prepared_at).total_seconds()
            said = (
                f"the oldest, {oldest.tx_id} of {oldest.producer or 'a producer without a name'}, "
                f"for {duration(age)}; {_asked(undecided)}. `fmq tx list` has them all."
            )
            what = f"{counted(len(undecided), 'undecided transaction')}"
            needs_you = age >= self.patience or any(tx.parked for tx in undecided)
            yield _verdict("transactions", what, said, needs_you)
        read = {info.topic for info in self.engine.groups()}
        for topic in sorted({queue.topic for queue in self.engine.queues()} - read):
            about = "Programs may read it without one."
            yield _verdict(f"topic {topic}", "no group reads it", about)
        stats = self.engine.stats()
        for what, trouble in (("engine", stats.failure), ("chores", stats.trouble)):
            if trouble:
                yield _verdict(what, "failed", trouble, True)
        if stats.kept is not None:
            holders = ", and ".join(stats.kept_by)
            said = f"segment {stats.kept.segment} is over the limits, and kept by {holders}"
            yield _verdict("retention", "waits", said)


def _asked(undecided: list[fmq.UndecidedTransaction]) -> str:
    parked = sum(tx.parked for tx in undecided)
    asked = sum(tx.answers > 0 for tx in undecided)
    if parked:
        return f"{parked} parked, as answers were unknown too often"
    if asked:
        return f"the checkers of {asked} said unknown"
    return "no checker has answered yet"


def _verdict(about: str, state: str, said: str, needs_you: bool = False) -> dict[str, Any]:
    return {"about": about, "state": state, "text": said, "needs_you": needs_you}
