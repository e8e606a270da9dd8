"""The limits of all groups that have one: which holds count, and who is woken.

A poll asks here only while some group has a limit. Guarded by the engine's lock.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial

from fmq.basics.clock import Clock
from fmq.consume.claims.holds import QueueHolds
from fmq.consume.limits.key_rooms import KeyRooms
from fmq.consume.limits.limiter import GroupLimiter
from fmq.errors import BadOption
from fmq.tx.ledger.ledger import Ledger


def ordered_by_key(group: str) -> BadOption:
    """Return the error for a group with both the order of keys and a limit by key."""
    return BadOption(
        f"the group {group!r} has ordered=True or a limit by key, and not both: ordered=True hands "
        "out the messages of one key to one poll at a time. Nothing was changed."
    )


class GroupLimits:
    """The limiters of groups, by name."""

    def __init__(
        self,
        ledger: Ledger,
        clock: Clock,
        found_us: int,
        holds_of: Callable[[str], Iterable[QueueHolds]],
        wake: Callable[[str], None],
    ) -> None:
        """`found_us` is the time of the last record or attempt that the engine found when it was
        opened. `holds_of` returns the holds of a group in all of its queues. `wake` lets the
        polls of a group look again.
        """
        self._ledger = ledger
        self._clock = clock
        self._found_us = found_us
        self._holds_of = holds_of
        self._wake_group = wake
        self._limiters: dict[str, GroupLimiter] = {}

    def left(self, group: str, wanted: int, now: float) -> int:
        """Return how many of the `wanted` messages `group` may be handed now."""
        limiter = self._limiters.get(group)
        if limiter is None:
            if group not in self._ledger.limits:
                return wanted
            # The limit is older than this engine. What was handed out before counts, too, and was
            # handed out no later than the last record that the engine found.
            age = max(self._clock.time_us() - self._found_us, 0) / 1_000_000
            limiter = self._make(group, found_at=now - age)
        return limiter.left(wanted, now)

    def _make(self, group: str, found_at: float) -> GroupLimiter:
        wake = partial(self._wake_group, group)
        limiter = GroupLimiter(self._ledger.limits[group], wake, found_at)
        # Where the group has not polled yet, holds are made now: clients of an earlier server may
        # have messages of any queue.
        for holds in self._holds_of(group):
            limiter.count(holds)
        self._limiters[group] = limiter
        return limiter

    def rooms(self, group: str, now: float) -> KeyRooms:
        """Return how many messages of each key `group`, which has a limit by key, may be handed
        now.
        """
        return self._limiters[group].rooms(now)

    def is_by_key(self, group: str) -> bool:
        """Return whether `group` has a limit by key."""
        limit = self._ledger.limits.get(group)
        return limit is not None and limit.is_by_key

    def until(self, group: str, now: float) -> float:
        """Return when a poll of `group` that waits because of the limit looks again."""
        limiter = self._limiters.get(group)
        return math.inf if limiter is None else limiter.until(now)

    def made(self, group: str, holds: QueueHolds) -> None:
        """Note that `group` has holds in one more queue."""
        limiter = self._limiters.get(group)
        if limiter is not None:
            limiter.count(holds)

    def changed(self, group: str) -> None:
        """Keep another limit of `group` from now on, or none."""
        limit, limiter = self._ledger.limits.get(group), self._limiters.get(group)
        if limit is None:
            self.forget(group)
        elif limiter is None:
            self._make(group, found_at=-math.inf)
        else:
            limiter.become(limit)
        self._wake_group(group)

    def forget(self, group: str) -> None:
        """Forget the limit of `group`."""
        limiter = self._limiters.pop(group, None)
        if limiter is not None:
            limiter.end()
