"""The live parts of pages that are open. All readers of a page share one, so many readers ask the
engine as often as one.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

from fmq.basics.clock import Clock
from fmq.dash.dash_request import Query
from fmq.dash.pulse import EVERY_SECONDS

# A part is as good as new until its reader asks again, or for twice as long as it took: so pages
# that ask much, as the overview does with a thousand groups, take a third of a thread at most.
FRESH_SECONDS, FRESH_TIMES = 0.95 * EVERY_SECONDS, 2.0
KEPT_SECONDS = 60.0  # how long a part is kept that nobody asks for


class LivePart:
    """The live part of one page."""

    def __init__(self) -> None:
        self.text = ""
        self.until = 0.0
        """By the clock's `monotonic`: from then on it is made anew."""
        self.making = Lock()


class LiveParts:
    """The parts that somebody has asked for lately. Any thread may call it."""

    def __init__(self, make: Callable[[str, Query], str], clock: Clock) -> None:
        """`make` returns the live part of a page."""
        self._make = make
        self._clock = clock
        self._lock = Lock()
        self._parts: dict[tuple[str, frozenset[tuple[str, str]]], LivePart] = {}

    def get(self, page: str, query: Query) -> str:
        """Return the live part of a page, which was made a short time ago at most. While another
        thread makes it anew, that is the one before.
        """
        part = self._part(page, query)
        if not part.making.acquire(blocking=not part.text):
            return part.text
        try:
            now = self._clock.monotonic()
            if now >= part.until:
                part.text = self._make(page, query)
                done = self._clock.monotonic()
                part.until = done + max(FRESH_SECONDS, FRESH_TIMES * (done - now))
            return part.text
        finally:
            part.making.release()

    def _part(self, page: str, query: Query) -> LivePart:
        now = self._clock.monotonic()
        with self._lock:
            for key, part in [*self._parts.items()]:
                if now > part.until + KEPT_SECONDS and not part.making.locked():
                    del self._parts[key]
            return self._parts.setdefault((page, frozenset(query.items())), LivePart())
