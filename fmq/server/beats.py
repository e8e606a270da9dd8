"""Entries by which the owner of a home says that it is alive, while a standby asks for them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf
from typing import Any

from fmq.loops.event_loop import Loop

EVERY_SECONDS_MIN, DURING_SECONDS_MAX = 0.1, 3600.0
SILENT_FOR = 3  # a standby takes over after so many times the seconds between two entries


class Beats:
    """The timer of one engine process."""

    def __init__(
        self,
        loop: Loop,
        monotonic: Callable[[], float],
        apart: Callable[[Callable[[], Any], Callable[[Any, BaseException | None], None]], None],
        beat: Callable[[float], None],
        failed: Callable[[], object],
        owned_until: Callable[[float], object] = lambda until: None,
    ) -> None:
        """`beat` appends an entry, in a thread, by `apart`. `failed` is called if it cannot.
        `owned_until` is told until when no standby takes over, as far as this owner knows.
        """
        self._loop = loop
        self._monotonic = monotonic
        self._apart = apart
        self._beat = beat
        self._failed = failed
        self._owned_until = owned_until
        self._every = self._until = 0.0
        self._is_running = False

    def ask(self, every: float, during: float) -> None:
        """From now on, for `during` seconds, see to it that there is an entry each `every` seconds.

        The timer goes on without the standby that asked. So an owner that was paused notices by
        itself that another machine has taken over.
        """
        every = max(every, EVERY_SECONDS_MIN)
        self._every = min(self._every, every) if self._is_running else every
        self._until = max(self._until, self._monotonic() + min(during, DURING_SECONDS_MAX))
        if not self._is_running:
            self._is_running = True
            self._owned_until(self._monotonic() + SILENT_FOR * self._every)
            self._begin()

    def _begin(self) -> None:
        # This process may pause at any moment. So the last entry begins after the time is over.
        now, quiet = self._monotonic(), self._every / 2
        # An entry that lies so far back is taken for a sign of life, too.
        until = inf if now >= self._until else now - quiet + SILENT_FOR * self._every
        beat = partial(self._beat, quiet)
        self._apart(beat, lambda _, error: self._ended(error, until))

    def _ended(self, error: BaseException | None, until: float) -> None:
        if error is not None:
            self._is_running = False
            self._failed()
            return
        self._owned_until(until)
        if until < inf:
            self._loop.call_later(min(self._every, DURING_SECONDS_MAX), self._begin)
        else:
            self._is_running = False
