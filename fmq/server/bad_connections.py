"""What is logged of connections that were refused or cut off: once a minute, with their number.

Whoever can connect causes these lines, so there must not be one for each connection.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

SAY_SECONDS = 60.0
logger = logging.getLogger("fmq.server")


class BadConnections:
    """Counts what went wrong with connections, and logs it: the first at once, then the number."""

    def __init__(self, call_later: Callable[..., Any], now: Callable[[], float]) -> None:
        self._call_later = call_later
        self._now = now
        self._said_at = float("-inf")
        self._count = 0  # since then
        self._last = ""

    def note(self, text: str) -> None:
        """Log `text`, or count it if another one was logged in the last minute."""
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
        """Log how many there were since the last line."""
        if self._count:
            logger.warning(
                "%s more connections were refused or cut off; the last: %s", self._count, self._last
            )
            self._said_at = self._now()
            self._count = 0
