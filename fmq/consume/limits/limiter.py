"""What a group with a limit may be handed now: so many messages in hand at once, so many a second.

The process that serves keeps it, as it alone sees all members. What is in hand is counted from the
holds themselves, at each claim, so no count can be wrong. It is all that a member, a transaction or
an earlier server's client has, until it is acked, given back, or its lease ends.

A poll that gets nothing because of the limit is woken when a hold ends, or looks again when the
next message is due. Guarded by the engine's lock.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial

from fmq.consume.claims.claim import Claim
from fmq.consume.claims.hold_map import Hold
from fmq.consume.claims.holds import LATER, QueueHolds
from fmq.consume.limits.key_rooms import KeyRates, KeyRooms
from fmq.consume.limits.rate_window import RateWindow
from fmq.tx.said.limit_met import LimitMet


class GroupLimiter:
    """What one group has in hand, and what its limit leaves."""

    def __init__(self, limit: LimitMet, wake: Callable[[], None], found_at: float) -> None:
        """`wake` lets the polls of the group look again. `found_at` is the last time before the
        opening at which a message may have been handed out; minus infinity if none was.
        """
        self._limit = limit
        self._wake = wake
        self._found_at = found_at
        self._holds: set[QueueHolds] = set()  # the holds of the group in each of its queues
        self._is_awaited = False  # True if a poll waits because of the limit
        # The holds of queues in which only keys without room wait, and the time at which the rate
        # gives one of these keys room.
        self._full: set[QueueHolds] = set()
        self._full_until = math.inf
        self._window: RateWindow | None = None
        self._rates: KeyRates | None = None
        self.become(limit)

    def become(self, limit: LimitMet) -> None:
        """Keep another limit from now on."""
        rate, rate_by_key = limit.rate, limit.rate_by_key
        if rate is None:
            self._window = None
        elif self._window is None or rate != self._limit.rate:
            self._window = RateWindow(rate, self._found_at)
        if rate_by_key is None:
            self._rates = None
        elif self._rates is None or rate_by_key != self._rates.rate:
            self._rates = KeyRates(rate_by_key, self._found_at)
        self._limit = limit
        if not limit.is_by_key:
            for holds in self._holds:
                holds.end_turns()

    def count(self, holds: QueueHolds) -> None:
        """Count what is held in one more queue."""
        self._holds.add(holds)
        holds.limiter = self

    def drop(self, holds: QueueHolds) -> None:
        """Stop counting these holds: the group was moved, and has another object for the queue."""
        self._holds.discard(holds)
        self._full.discard(holds)
        self.freed()

    def end(self) -> None:
        """Limit nothing any more."""
        for holds in self._holds:
            holds.limiter = None
            holds.end_turns()

    def freed(self) -> None:
        """Wake the polls that wait because of the limit: a hold has ended."""
        self._look_again()
        if self._is_awaited:
            self._is_awaited = False
            self._wake()

    def _look_again(self) -> None:
        """Let polls look again at the queues in which no key had room."""
        full, self._full, self._full_until = self._full, set(), math.inf
        for holds in full:
            holds.look_again()

    def _note_full(self, now: float, holds: QueueHolds) -> None:
        self._full.add(holds)
        if self._rates is not None:
            self._full_until = self._rates.due(now)
        self._is_awaited = True

    def handed(self, now: float, holds: QueueHolds, ranges: Iterable[tuple[int, int]]) -> None:
        """Note that the messages of `ranges` are handed to a program."""
        for first, end in ranges:
            if self._window is not None:
                self._window.note(now, end - first)
            if self._rates is not None:
                for offset in range(first, end):
                    self._rates.note(now, holds.key_of(offset))

    def left(self, wanted: int, now: float) -> int:
        """Return how many of the `wanted` messages may be claimed now. Leases that have ended are
        given back first.
        """
        limit, window = self._limit, self._window
        in_hand = untold = 0  # `untold`: how many messages are claimed and not counted yet
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
        if window is not None:
            left = min(left, window.left(now) - untold)
        if left <= 0:
            self._is_awaited = True
        return max(left, 0)

    def rooms(self, now: float) -> KeyRooms:
        """Return how many messages of each key may be claimed now. The keys of all that is in hand
        are known.
        """
        if now >= self._full_until:
            self._look_again()
        noted = partial(self._note_full, now)
        rooms = KeyRooms(self._limit.concurrency_by_key, self._rates, now, noted)
        for holds in self._holds:
            for hold in holds.held():
                untold = _is_untold(hold)
                for offset in range(hold.first, hold.end):
                    key = holds.key_of(offset)
                    rooms.in_hand[key] += 1
                    if untold:
                        rooms.untold[key] += 1
        return rooms

    def until(self, now: float) -> float:
        """Return the time at which a poll that waits because of the limit looks again, if it is not
        woken before.
        """
        found = min((holds.earliest_deadline for holds in self._holds), default=math.inf)
        if self._window is not None:
            found = min(found, self._window.due())
        if self._rates is not None:
            found = min(found, self._rates.due(now))
        return found


def _is_untold(hold: Hold) -> bool:
    """Return whether a hold is a claim whose attempt is not counted yet."""
    return isinstance(hold.owner, Claim) and hold.count == hold.owner.count
