"""The limits of all groups that have one: which holds count, and who is woken.

A poll asks here only while some group has a limit. Guarded by the engine's lock.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial

from fmq.basics.clock import Clock
from fmq.consume.claims.holds import QueueHolds
from fmq.consume.claims.limiter import GroupLimiter
from fmq.tx.ledger.ledger import Ledger


class GroupLimits:
    """The limiters of groups, by name."""

    def __init__(
        self,
        ledger: Ledger,
        clock: Clock,
        found_us: int,
        holds_of: Callable[[str], Iterable[QueueHolds]],
    ) -> None:
        """`found_us` is the time of the last record or attempt that the engine found when it was
        opened. `holds_of` returns the holds of a group in all of its queues.
        """
        self._ledger = ledger
        self._clock = clock
        self._found_us = found_us
        self._holds_of = holds_of
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
        wake = partial(self._wake, group)
        limiter = GroupLimiter(self._ledger.limits[group], wake, found_at)
        # Where the group has not polled yet, holds are made now: clients of an earlier server may
        # have messages of any queue.
        for holds in self._holds_of(group):
            limiter.count(holds)
        self._limiters[group] = limiter
        return limiter

    def _wake(self, group: str) -> None:
        """Let the polls of `group` look again."""
        subscriptions = self._ledger.subscriptions
        self._ledger.arrived.update(topic for of, topic in subscriptions if of == group)

    def until(self, group: str) -> float:
        """Return when a poll of `group` looks again that waits because of the limit."""
        limiter = self._limiters.get(group)
        return math.inf if limiter is None else limiter.until()

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
        self._wake(group)

    def forget(self, group: str) -> None:
        """Forget the limit of `group`."""
        limiter = self._limiters.pop(group, None)
        if limiter is not None:
            limiter.end()
