"""Looks at an engine now and then, and remembers the last ones for the curves.

All pages of a program share them, so a hundred open pages cost one look. A look asks what
`fmq top` asks, and the rates are those of `fmq top`, over the last half minute.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from threading import Lock
from typing import Any

import fmq
from fmq.basics.clock import Clock
from fmq.findings.rates import Sight, compared, look, without_rates

EVERY_SECONDS = 2.0
RATE_SECONDS = 30.0
LOOKS_KEPT = 300  # ten minutes


class Pulse:
    """The last looks at one engine. Any thread may call it."""

    def __init__(self, engine: fmq.AnyEngine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock
        self._lock = Lock()
        self._sights: deque[Sight] = deque()
        self._rows: dict[str, Mapping[str, Any]] = {}
        self._journal: Mapping[str, Any] = {}
        self._curves: dict[tuple[str, str], deque[float]] = {}

    def beat(self) -> None:
        """Look, unless the last look is younger than EVERY_SECONDS. Raises the errors of the calls
        of the engine.
        """
        with self._lock:
            now = self._clock.monotonic()
            if self._sights and now - self._sights[-1].at < EVERY_SECONDS:
                return
            sight = look(self._engine, self._clock)
            before = self._sights[-1] if self._sights else sight
            self._sights.append(sight)
            while len(self._sights) > 2 and sight.at - self._sights[1].at >= RATE_SECONDS:
                self._sights.popleft()
            self._journal, *groups = compared(self._sights[0], sight)
            if sight is before:
                self._journal, *groups = map(without_rates, [self._journal, *groups])
            else:
                self._remember(compared(before, sight))
            self._rows = {row["group"]: row for row in groups}

    def _remember(self, rows: list[dict[str, Any]]) -> None:
        wanted = {("", "messages_per_second"): rows[0]["messages_per_second"]}
        for row in rows[1:]:
            for key in ("lag", "arrive_per_second", "acks_per_second"):
                wanted[row["group"], key] = row[key]
        gone = self._curves.keys() - wanted.keys()
        for name in gone:
            del self._curves[name]
        for name, value in wanted.items():
            self._curves.setdefault(name, deque(maxlen=LOOKS_KEPT)).append(value)

    def journal(self) -> Mapping[str, Any]:
        """Return what `fmq top` says of the journal, after a look."""
        self.beat()
        return self._journal

    def group(self, name: str) -> Mapping[str, Any]:
        """Return what `fmq top` says of a group; nothing of one that is new."""
        return self._rows.get(name, {})

    def curve(self, group: str, key: str) -> list[float]:
        """Return the last values of a number of a group, or of the journal for ""."""
        with self._lock:
            return list(self._curves.get((group, key), ()))
