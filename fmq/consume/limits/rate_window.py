"""What was handed out of late: so many messages a second, and never more.

In no span of `count / rate` seconds more than `count` messages are handed out. `count` is what fits
a second, at least one. An example: with a rate of 10, in no second more than 10; with 0.5, one in
two seconds.
"""

from __future__ import annotations

import math
from collections import deque


class RateWindow:
    """What was handed out of late, for one rate."""

    __slots__ = ("_count", "_handed", "_out", "_span")

    def __init__(self, rate: float, found_at: float) -> None:
        """It is not known how many messages the process before has handed out. So as many as the
        rate allows count as handed out at the time `found_at`.
        """
        self._count = max(1, math.floor(rate))
        self._span = self._count / rate
        # Pairs: when messages count no longer, and how many they are.
        self._handed: deque[tuple[float, int]] = deque()
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

    def is_empty(self, now: float) -> bool:
        """Return whether nothing counts that was handed out."""
        return self.left(now) == self._count

    def due(self) -> float:
        """Return when the next message may be handed out, if none may now."""
        return self._handed[0][0] if self._handed else math.inf
