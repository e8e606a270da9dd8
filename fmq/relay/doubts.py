"""How a relay and a sink wait when they do not know what was stored, before they ask again."""

from __future__ import annotations

import logging
from threading import Event

logger = logging.getLogger("fmq.relay")
PAUSE_SECONDS, PAUSE_SECONDS_MAX = 0.1, 5.0


class Doubts:
    """Counts the doubts. Each in a row has twice the pause of the one before."""

    def __init__(self, ends: Event, then: str) -> None:
        """`ends` ends a pause. `then` says in the log what is done after it."""
        self.count = 0
        self._ends = ends
        self._then = then
        self._pause = PAUSE_SECONDS

    def wait(self, error: Exception) -> None:
        logger.warning("%s: %s", self._then, error)
        self.count += 1
        self._ends.wait(self._pause)
        self._pause = min(2 * self._pause, PAUSE_SECONDS_MAX)

    def are_over(self) -> None:
        """Begin with a short pause again: something was stored."""
        self._pause = PAUSE_SECONDS
