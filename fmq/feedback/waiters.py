"""The calls that wait for a question to become due or to end, and how they are woken.

Guarded by the engine's lock.
"""

from __future__ import annotations

from collections.abc import Iterable

from fmq.feedback.schedule import Key
from fmq.tx.looks.messages import Wakeup


class DueWakeup(Wakeup):
    """Wakes one call that waits until a question under one of its keys is due."""

    __slots__ = ("keys", "until")

    def __init__(self, keys: Iterable[Key]) -> None:
        super().__init__()
        self.keys = keys
        self.until = 0.0  # the time at which the call looks again by itself


class Waiters:
    """All calls that wait for questions of one engine."""

    def __init__(self) -> None:
        self._for_due: dict[Key, set[DueWakeup]] = {}
        self._for_end: set[Wakeup] = set()

    def wait_for_due(self, wakeup: DueWakeup, until: float) -> None:
        """Wake `wakeup` when a question under one of its keys becomes due before `until`."""
        wakeup.until = until
        for key in wakeup.keys:
            self._for_due.setdefault(key, set()).add(wakeup)

    def wait_for_end(self, wakeup: Wakeup) -> None:
        """Wake `wakeup` when any question ends, with or without a decision."""
        self._for_end.add(wakeup)

    def remove_due(self, wakeup: DueWakeup) -> None:
        """Remove `wakeup` from the calls that wait for a due question, if it is there."""
        for key in wakeup.keys:
            wakeups = self._for_due.get(key)
            if wakeups is not None:
                wakeups.discard(wakeup)
                if not wakeups:
                    del self._for_due[key]

    def remove_end(self, wakeup: Wakeup) -> None:
        """Remove `wakeup` from the calls that wait for the end of a question, if it is there."""
        self._for_end.discard(wakeup)

    def sleep_beyond(self, due: float) -> bool:
        """Return whether any call would otherwise sleep beyond the time `due`."""
        return any(due < wakeup.until for wakeups in self._for_due.values() for wakeup in wakeups)

    def wake_for_due(self, keys: Iterable[Key], due: float) -> None:
        """Wake the calls that wait for a question under `keys` and would sleep beyond the time
        `due`.
        """
        for key in keys:
            for wakeup in self._for_due.get(key, ()):
                if due < wakeup.until:
                    wakeup()

    def wake_for_end(self) -> None:
        """Wake the calls that wait for the end of a question."""
        for wakeup in self._for_end:
            wakeup()

    def wake_all(self) -> None:
        """Wake every waiting call."""
        for wakeups in self._for_due.values():
            for wakeup in wakeups:
                wakeup()
        self.wake_for_end()
