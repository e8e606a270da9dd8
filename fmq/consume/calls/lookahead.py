"""How far a loop over a consumer reads ahead, and what it has taken and not handed out yet.

A loop takes what the program handles in a tenth of a second. So nothing waits here for long: no
lease ends meanwhile, and other members get their share. It takes messages one at a time where the
order of keys is kept, and where one more attempt would be the last one. A message that was tried
before is handed out alone, because it may have ended its program. If it does so again, the crash
counts an attempt of this message only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from fmq.consume.claims.backoff import Retry

AHEAD_MAX = 64
AHEAD_MAX_OF_SEVERAL = 8  # a lower limit if other members of the group may wait for messages
AHEAD_SECONDS = 0.1
LEASE_SHARE = 0.1  # A message waits in a loop for at most this part of its lease.
# If fewer attempts are allowed, one crash of the program could use up all attempts of messages that
# it has not seen.
ATTEMPTS_MIN = 3
ASK_SECONDS = 10.0  # seconds for which a loop believes that its group has no other member


class Attempted(Protocol):
    """A delivery, as far as a lookahead knows it."""

    @property
    def attempt(self) -> int: ...


D = TypeVar("D", bound=Attempted)


class Lookahead(Generic[D]):
    """What one loop has taken ahead. A drain in another thread may take the rest of it."""

    def __init__(
        self,
        monotonic: Callable[[], float],
        lease_seconds: float,
        retry: Retry,
        *,
        is_ordered: bool,
    ) -> None:
        self._monotonic = monotonic
        self._patience = min(AHEAD_SECONDS, lease_seconds * LEASE_SHARE)
        tries = retry.attempts
        self._is_off = is_ordered or (tries is not None and tries < ATTEMPTS_MIN)
        self._waiting: deque[D] = deque()
        self._limit = 1
        self._taken = 0  # how many messages the last poll has taken
        self._taken_at = 0.0
        self._is_shared = False
        self._asked_at = float("-inf")

    def next(self) -> D | None:
        """Return the next delivery. Return None if there is none, or if the rest has waited for too
        long: then the caller gives `rest` back.
        """
        if not self._waiting or self._monotonic() - self._taken_at > self._patience:
            return None
        try:
            return self._waiting.popleft()
        except IndexError:  # a drain in another thread has taken the last message
            return None

    def rest(self) -> list[D]:
        """Return what was not handed out yet, and forget it."""
        found: list[D] = []
        while self._waiting:
            try:
                found.append(self._waiting.popleft())
            except IndexError:  # another thread takes the other messages
                break
        if found:
            self._limit = 1  # the program has become slower: take one at a time
        return found

    def limit(self) -> int:
        """Return how many messages the next poll should take."""
        if self._is_off or not self._taken:
            return 1
        spent = self._monotonic() - self._taken_at
        fits = self._patience / (spent / self._taken) if spent > 0 else AHEAD_MAX
        most = AHEAD_MAX_OF_SEVERAL if self._is_shared else AHEAD_MAX
        self._limit = max(1, int(min(2 * self._limit, fits, most)))
        return self._limit

    def wants_to_know(self) -> bool:
        """Return whether the caller should call `note_others`, because the last answer is old."""
        is_large = self._limit >= AHEAD_MAX_OF_SEVERAL
        return is_large and self._monotonic() - self._asked_at >= ASK_SECONDS

    def note_others(self, members: int) -> None:
        """Note how many members the group has."""
        self._is_shared, self._asked_at = members > 1, self._monotonic()

    def fill(self, found: list[D]) -> list[D]:
        """Keep the deliveries of a poll. Return those that are to be given back."""
        self._taken, self._taken_at = len(found), self._monotonic()
        alone = bool(found) and found[0].attempt > 1
        if alone:
            self._taken, self._limit = 0, 1
        self._waiting.extend(found[:1] if alone else found)
        return found[1:] if alone else []
