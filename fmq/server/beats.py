"""Entries by which the owner of a home says that it is alive, while a standby asks for them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from fmq.loops.event_loop import Loop

EVERY_SECONDS_MIN, DURING_SECONDS_MAX = 0.1, 3600.0


class Beats:
    """The timer of one engine process."""

    def __init__(
        self,
        loop: Loop,
        monotonic: Callable[[], float],
        apart: Callable[[Callable[[], Any], Callable[[Any, BaseException | None], None]], None],
        beat: Callable[[float], None],
        failed: Callable[[], object],
    ) -> None:
        """`beat` appends an entry, in a thread, by `apart`. `failed` is called if it cannot."""
        self._loop = loop
        self._monotonic = monotonic
        self._apart = apart
        self._beat = beat
        self._failed = failed
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
            self._begin()

    def _begin(self) -> None:
        # This process may pause at any moment. So the last entry begins after the time is over.
        is_last = self._monotonic() >= self._until
        beat = partial(self._beat, self._every / 2)
        self._apart(beat, lambda _, error: self._ended(error, is_last=is_last))

    def _ended(self, error: BaseException | None, *, is_last: bool) -> None:
        if error is not None:
            self._is_running = False
            self._failed()
        elif not is_last:
            self._loop.call_later(min(self._every, DURING_SECONDS_MAX), self._begin)
        else:
            self._is_running = False
