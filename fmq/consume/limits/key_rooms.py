"""How many messages of each key a group may be handed now, by its limit.

What is in hand is counted by key for each claim, from the holds. Guarded by the engine's lock.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

from fmq.consume.claims.holds import QueueHolds
from fmq.consume.claims.key_order import MessageKey
from fmq.consume.limits.rate_window import RateWindow


class KeyRates:
    """What was handed out of late of each key, for a rate by key."""

    def __init__(self, rate: float, found_at: float) -> None:
        self.rate = rate
        self._found_at = found_at
        self._by_key: dict[MessageKey, RateWindow] = {}

    def _window(self, key: MessageKey) -> RateWindow:
        window = self._by_key.get(key)
        if window is None:
            window = self._by_key[key] = RateWindow(self.rate, self._found_at)
        return window

    def note(self, now: float, key: MessageKey) -> None:
        """Note that a message of `key` is handed out."""
        self._window(key).note(now, 1)

    def left(self, now: float, key: MessageKey) -> int:
        """Return how many messages of `key` may be handed out now."""
        return self._window(key).left(now)

    def due(self, now: float) -> float:
        """Return when the next message of some key may be handed out. Forget keys of which nothing
        was handed out of late.
        """
        for key in [key for key, window in self._by_key.items() if window.is_empty(now)]:
            del self._by_key[key]
        return min((window.due() for window in self._by_key.values()), default=math.inf)


class KeyRooms:
    """The room for each key, while one claim is made."""

    def __init__(
        self,
        most: int | None,
        rates: KeyRates | None,
        now: float,
        note_full: Callable[[QueueHolds], None],
    ) -> None:
        """At most `most` messages of a key may be in hand at once; None: any number. `note_full`
        is called for a queue of whose messages no key has room.
        """
        self.note_full = note_full
        self._most = most
        self._rates = rates
        self._now = now
        self.in_hand: Counter[MessageKey] = Counter()
        # How many messages of each key are claimed, and do not count for the rate yet.
        self.untold: Counter[MessageKey] = Counter()

    def has_room(self, key: MessageKey) -> bool:
        """Return whether one more message of `key` may be handed out."""
        if self._most is not None and self.in_hand[key] >= self._most:
            return False
        return self._rates is None or self._rates.left(self._now, key) > self.untold[key]

    def took(self, key: MessageKey) -> None:
        """Note that the claim takes a message of `key`."""
        self.in_hand[key] += 1
        self.untold[key] += 1
