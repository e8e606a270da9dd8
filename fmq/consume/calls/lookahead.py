"""How far a loop over a consumer reads ahead, and what it has taken and not handed out yet.

It takes what the program handles in a tenth of a second, so that nothing waits here for long: a
lease does not end meanwhile, and other members get their share. It takes one at a time where the
order of keys is kept, and where one more attempt would be the last. What was tried before is handed
out alone, as it may have ended its program; a crash then counts an attempt of it and of nothing
else.
"""

from __future__ import annotations

from collections import deque
from typing import Generic, Protocol, TypeVar

from fmq.basics.clock import Clock
from fmq.consume.claims.backoff import Retry

AHEAD_MAX = 64
AHEAD_MAX_OF_SEVERAL = 8  # where other members may be waiting
AHEAD_SECONDS = 0.1
LEASE_SHARE = 0.1  # of a lease, if that is shorter
ATTEMPTS_MIN = 3  # for others the crash of a program could use up what it has not seen
ASK_SECONDS = 10.0  # how long a loop believes that its consumer is alone


class Attempted(Protocol):
    """A delivery."""

    @property
    def attempt(self) -> int: ...


D = TypeVar("D", bound=Attempted)


class Lookahead(Generic[D]):
    """What one loop has taken. A drain in another thread may take the rest of it."""

    def __init__(
        self, clock: Clock, lease_seconds: float, retry: Retry, *, is_ordered: bool
    ) -> None:
        self._monotonic = clock.monotonic
        self._patience = min(AHEAD_SECONDS, lease_seconds * LEASE_SHARE)
        tries = retry.attempts
        self._is_off = is_ordered or (tries is not None and tries < ATTEMPTS_MIN)
        self._waiting: deque[D] = deque()
        self._limit = 1
        self._taken = 0  # by the last poll
        self._taken_at = 0.0
        self._is_shared = False
        self._asked_at = float("-inf")

    def next(self) -> D | None:
        """Return the next delivery; None if there is none, or if the others have waited too long:
        then the caller gives `rest` back.
        """
        if not self._waiting or self._monotonic() - self._taken_at > self._patience:
            return None
        try:
            return self._waiting.popleft()
        except IndexError:  # a drain has just taken it
            return None

    def rest(self) -> list[D]:
        """Return what still waits, and forget it."""
        found: list[D] = []
        while self._waiting:
            try:
                found.append(self._waiting.popleft())
            except IndexError:  # another thread takes it
                break
        if found:
            self._limit = 1  # the program is slower than it was
        return found

    def limit(self) -> int:
        """Return how many to take now."""
        if self._is_off or not self._taken:
            return 1
        spent = self._monotonic() - self._taken_at
        fits = self._patience / (spent / self._taken) if spent > 0 else AHEAD_MAX
        most = AHEAD_MAX_OF_SEVERAL if self._is_shared else AHEAD_MAX
        self._limit = max(1, int(min(2 * self._limit, fits, most)))
        return self._limit

    def wants_to_know(self) -> bool:
        """Return whether to say by `note_others` if the group has other members."""
        is_large = self._limit >= AHEAD_MAX_OF_SEVERAL
        return is_large and self._monotonic() - self._asked_at >= ASK_SECONDS

    def note_others(self, members: int) -> None:
        """Note how many members the group has."""
        self._is_shared, self._asked_at = members > 1, self._monotonic()

    def fill(self, found: list[D]) -> list[D]:
        """Keep what a poll has brought. Return what is to be given back."""
        self._taken, self._taken_at = len(found), self._monotonic()
        alone = bool(found) and found[0].attempt > 1
        if alone:
            self._taken, self._limit = 0, 1
        self._waiting.extend(found[:1] if alone else found)
        return found[1:] if alone else []
