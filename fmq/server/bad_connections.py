"""The log of connections that were refused or cut off: one line a minute, with their number.

Anybody who can connect can cause such lines, so there must not be one for each connection.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

SAY_SECONDS = 60.0
logger = logging.getLogger("fmq.server")


class BadConnections:
    """Counts and logs problems with connections: the first one at once, later ones as a number."""

    def __init__(self, call_later: Callable[..., Any], now: Callable[[], float]) -> None:
        self._call_later = call_later
        self._now = now
        self._said_at = float("-inf")
        self._count = 0  # problems since the last line in the log
        self._last = ""

    def note(self, text: str) -> None:
        """Log `text`. If a line was logged in the last minute, only count it."""
        left = self._said_at + SAY_SECONDS - self._now()
        if left <= 0 and not self._count:
            self._said_at = self._now()
            logger.warning("%s", text)
            return
        self._last = text
        self._count += 1
        if self._count == 1:
            self._call_later(left, self.say)

    def say(self) -> None:
        """Log how many problems there were since the last line."""
        if self._count:
            logger.warning(
                "%s more connections were refused or cut off; the last: %s", self._count, self._last
            )
            self._said_at = self._now()
            self._count = 0
