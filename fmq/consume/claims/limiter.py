"""What a group with a limit may be handed now: so many messages in hand at once, so many a second.

The process that serves keeps it, as it alone sees all members. What is in hand is counted from the
holds themselves, at each claim, so no count can be wrong. It is all that a member, a transaction or
an earlier server's client has, until it is acked, given back, or its lease ends.

The rate is kept exactly: in no span of `count / rate` seconds more than `count` messages are
handed out. `count` is what fits a second, at least one. An example: with a rate of 10, in no second
more than 10; with 0.5, one in two seconds.

A poll that gets nothing because of the limit is woken when a hold ends, or looks again when the
next message is due. Guarded by the engine's lock.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable

from fmq.consume.claims.claim import Claim
from fmq.consume.claims.hold_map import Hold
from fmq.consume.claims.holds import LATER, QueueHolds
from fmq.tx.said.limit_met import LimitMet


class RateWindow:
    """What was handed out of late, for one rate."""

    __slots__ = ("_count", "_handed", "_out", "_span")

    def __init__(self, rate: float, found_at: float) -> None:
        """It is not known how many messages the process before has handed out. So as many as the
        rate allows count as handed out at the time `found_at`.
        """
        self._count = max(1, math.floor(rate))
        self._span = self._count / rate
        self._handed: deque[tuple[float, int]] = deque()  # (when it counts no longer, how many)
        self._out = 0  # the sum over `_handed`
        self.note(found_at, self._count)

    def note(self, now: float, count: int) -> None:
        """Note that `count` messages are handed out."""
        self._handed.append((now + self._span, count))
        self._out += count

    def left(self, now: float) -> int:
        """Return how many messages may be handed out now."""
        handed = self._handed
        while handed and handed[0][0] <= now:
            self._out -= handed.popleft()[1]
        return max(self._count - self._out, 0)

    def due(self) -> float:
        """Return when the next message may be handed out, if none may now."""
        return self._handed[0][0] if self._handed else math.inf


class GroupLimiter:
    """What one group has in hand, and what its limit leaves."""

    def __init__(self, limit: LimitMet, wake: Callable[[], None], found_at: float) -> None:
        """`wake` lets the polls of the group look again. `found_at` is the last time before the
        opening at which a message may have been handed out; minus infinity if none was.
        """
        self._limit = limit
        self._wake = wake
        self._found_at = found_at
        self._holds: set[QueueHolds] = set()  # of the group, in each of its queues
        self._is_awaited = False  # True if a poll waits because of the limit
        self._pace: RateWindow | None = None
        self.become(limit)

    def become(self, limit: LimitMet) -> None:
        """Keep another limit from now on."""
        if limit.rate is None:
            self._pace = None
        elif self._pace is None or limit.rate != self._limit.rate:
            self._pace = RateWindow(limit.rate, self._found_at)
        self._limit = limit

    def count(self, holds: QueueHolds) -> None:
        """Count what is held in one more queue."""
        self._holds.add(holds)
        holds.limiter = self

    def drop(self, holds: QueueHolds) -> None:
        """Stop counting these holds: the group was moved, and has another object for the queue."""
        self._holds.discard(holds)
        self.freed()

    def end(self) -> None:
        """Limit nothing any more."""
        for holds in self._holds:
            holds.limiter = None

    def freed(self) -> None:
        """Wake the polls that wait because of the limit: a hold has ended."""
        if self._is_awaited:
            self._is_awaited = False
            self._wake()

    def handed(self, now: float, count: int) -> None:
        """Note that `count` messages are handed to a program."""
        if self._pace is not None:
            self._pace.note(now, count)

    def left(self, wanted: int, now: float) -> int:
        """Return how many of the `wanted` messages may be claimed now. Leases that have ended are
        given back first.
        """
        limit, pace = self._limit, self._pace
        in_hand = untold = (
            0  # `untold`: what is claimed and will count for the rate, or be given back
        )
        for holds in self._holds:
            if now >= holds.earliest_deadline:
                holds.expire(now)
            for hold in holds.held():
                if hold.owner is not LATER:
                    in_hand += hold.end - hold.first
                    untold += hold.end - hold.first if _is_untold(hold) else 0
        left = wanted
        if limit.concurrency is not None:
            left = min(left, limit.concurrency - in_hand)
        if pace is not None:
            left = min(left, pace.left(now) - untold)
        if left <= 0:
            self._is_awaited = True
        return max(left, 0)

    def until(self) -> float:
        """Return the time at which a poll that waits because of the limit looks again unwoken."""
        found = min((holds.earliest_deadline for holds in self._holds), default=math.inf)
        if self._pace is not None:
            found = min(found, self._pace.due())
        return found


def _is_untold(hold: Hold) -> bool:
    """Return whether a hold is a claim whose attempt is not counted yet."""
    return isinstance(hold.owner, Claim) and hold.count == hold.owner.count
