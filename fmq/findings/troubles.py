"""What needs a person: a line about each group, and about transactions, topics and retention.

`fmq why` and the first page of `fmq dash` show these lines. They ask an engine, and change nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import fmq
from fmq.basics.clock import Clock, SystemClock, as_datetime
from fmq.findings.text import counted, duration
from fmq.findings.verdict import PATIENCE_SECONDS, PROBLEMS, Seen, remarks, worst

HELD_MAX = 10_000  # how many ranges of a group are looked at


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

    def seen(self, name: str, clients: Callable[[], list[fmq.ClientInfo]] | None = None) -> Seen:
        """Return what is known of a group. `clients` returns those of the engine, and is called if
        the group has no member; by default, the engine is asked. Raises UnknownGroup.
        """
        group = self.engine.group(name)
        members, held = None, None
        connected: tuple[fmq.ClientInfo, ...] = ()
        with suppress(fmq.ReadOnly):
            members, held = group.members(), group.in_hand(limit=HELD_MAX)
            there = [] if members else (clients or self.engine.clients)()
            connected = tuple(each for each in there if any(of == name for of, _ in each.members))
        infos = group.infos()
        now = as_datetime(self.clock.time_us())  # at once: `infos` says ages
        timeout = self.engine.options.member_timeout_seconds
        asked = infos, members, held, self.writer, now, self.patience, timeout, connected
        return Seen(self.path, name, *asked)

    def of_groups(self) -> Iterator[dict[str, Any]]:
        """Yield a row for each group."""
        clients = cache(self.engine.clients)  # once for all groups
        for name in sorted({info.group for info in self.engine.groups()}):
            with suppress(fmq.UnknownGroup):  # the group was deleted meanwhile
                found = remarks(self.seen(name, clients))
                state = worst(found)
                row = _verdict(f"group {name}", state, found[0].text, state in PROBLEMS)
                yield row | {"group": name}

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
