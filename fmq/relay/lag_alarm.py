"""Says in the log that a relay is far behind, as retention waits for it and the disk fills."""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic

from fmq.relay.source import RelaySource

logger = logging.getLogger("fmq.relay")
LOOK_SECONDS = 1.0


class LagAlarm:
    """Compares the lag of a relay with a level, from time to time."""

    def __init__(
        self, source: RelaySource, seconds: float, now: Callable[[], float] = monotonic
    ) -> None:
        """`seconds` is the level: how long ago the oldest message that is not copied was sent."""
        self._source = source
        self._seconds = seconds
        self._now = now
        self._due = now()
        self._is_on = False

    def is_late(self, seconds: float) -> bool:
        """Return whether a lag of so many seconds has reached the level."""
        return seconds >= self._seconds

    def look(self) -> None:
        """Log a warning once the lag has reached the level, and again when it is below."""
        if self._now() < self._due:
            return
        self._due = self._now() + LOOK_SECONDS
        lag, seconds = self._source.lag()
        was_on, self._is_on = self._is_on, self.is_late(seconds)
        if self._is_on and not was_on:
            logger.warning(
                "the relay is behind: %s messages are not copied, the oldest of them for %.0f s. "
                "Retention waits for them, so the directory grows",
                *(lag, seconds),
            )
        elif was_on and not self._is_on:
            logger.warning("the relay is less than %s s behind again", self._seconds)
