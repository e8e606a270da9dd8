"""What an engine has counted since it was opened, and how long things took. They know no engine.

Nothing here is a rate. `Counts.since` gives what happened between two looks, and in how many
seconds. So each reader keeps its own earlier look, and none changes what another one sees.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime
from typing import Any

BUCKETS = 80  # no difference of two clocks needs more


def new_buckets() -> list[int]:
    """Return the buckets of an empty `Times`. A caller adds a time of `ns` nanoseconds by
    `buckets[ns.bit_length()] += 1`, because calling a function would cost more than all the rest.
    """
    return [0] * BUCKETS


class GroupTally:
    """Where the members of a group count what they do. Guarded by the engine's lock."""

    __slots__ = ("attempts", "failures", "handed_over", "handled", "retries")

    def __init__(self) -> None:
        self.attempts = self.retries = self.failures = 0
        self.handed_over = new_buckets()
        self.handled = new_buckets()


@dataclass(frozen=True, slots=True)
class Times:
    """How long something took, for each time that it was done. Bucket `i` counts the times below
    2**i nanoseconds that are at least half of that.
    """

    buckets: tuple[int, ...]

    @property
    def count(self) -> int:
        """How many times were counted."""
        return sum(self.buckets)

    def __repr__(self) -> str:
        return f"<Times {self.count}, 99 % within {self.within(0.99)} s>"

    def within(self, share: float) -> float | None:
        """Return in how many seconds a `share` of the times had ended, such as 0.99 of them. This
        is the end of a bucket, so it may be twice too long. None if there are none.
        """
        wanted, found = share * self.count, 0
        for i, count in enumerate(self.buckets):
            found += count
            if count and found >= wanted:
                return float(1 << i) / 1e9
        return None


@dataclass(frozen=True, slots=True)
class GroupCounts:
    """What a group has done."""

    attempts: int
    """How many messages were handed out, each time that they were."""
    retries: int
    """How many of `attempts` were not the first ones of their messages."""
    failures: int
    """How many attempts were given back, by a handler that failed or by `release`. Leases that
    have ended are among the `retries` alone."""
    acked: dict[str, int]
    """With how many messages of each topic it is done: acked, rejected, expired, or passed over by
    its filter."""
    rejected: int
    """How many messages have become dead letters."""
    handed_over: Times
    """How long messages were on their way from the send to their first attempt. A poll counts the
    first of its messages, but not that of a batch which had to be read from the disk."""
    handled: Times
    """How long programs had messages, from the poll to the ack or the rejection. What a transaction
    acks is not counted."""
    out: dict[str, int]
    """How many members went out of the group, by `FormerMember.why`."""


@dataclass(frozen=True, slots=True)
class Counts:
    """What an engine has counted since it was opened; or between two looks."""

    opened_at: datetime
    """When the engine was opened."""
    seconds: float
    """For how long it has counted."""
    sent: dict[str, int]
    """How many messages were published, by topic, those of transactions included."""
    commits: int
    """How many transactions were committed."""
    rollbacks: int
    """How many transactions were rolled back that had been prepared."""
    questions: int
    """How often a checker was asked about a transaction."""
    answers: int
    """How many answers came, "unknown" included."""
    written: Times
    """How long writes to the journal took, with their syncs."""
    groups: dict[str, GroupCounts]

    def since(self, earlier: Counts | None) -> Counts:
        """Return what has happened since an `earlier` look at the same engine. If the engine was
        opened after that look, return all that has happened since it was opened.
        """
        if earlier is None or earlier.opened_at != self.opened_at:
            return self
        grown: Counts = _less(self, earlier)
        return grown


def _less(now: Any, then: Any) -> Any:
    """Return how much each number has grown. A number may be smaller than before, if its group was
    deleted and made again. Then return the number itself.
    """
    if then is None or isinstance(now, datetime):
        return now
    if isinstance(now, dict):
        return {name: _less(each, then.get(name)) for name, each in now.items()}
    if isinstance(now, tuple):
        return tuple(map(_less, now, then))
    if is_dataclass(now) and not isinstance(now, type):
        names = [each.name for each in fields(now)]
        return type(now)(*(_less(getattr(now, name), getattr(then, name)) for name in names))
    return now - then if now >= then else now
