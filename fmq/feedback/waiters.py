"""The calls that wait for a question to become due or to end, and how they are woken.

Guarded by the engine's lock.
"""

from __future__ import annotations

from collections.abc import Iterable

from fmq.feedback.schedule import QuestionKey
from fmq.steps.call_steps import Notify, Wakeup


class Waiters:
    """All calls that wait for questions of one engine."""

    def __init__(self) -> None:
        # Key -> what wakes a waiting call -> the time at which the call looks again by itself.
        self._for_due: dict[QuestionKey, dict[Notify, float]] = {}
        self._for_end: set[Wakeup] = set()

    def wait_for_due(self, keys: Iterable[QuestionKey], wakeup: Notify, until: float) -> None:
        """Call `wakeup` when a question under one of `keys` becomes due before `until`."""
        for key in keys:
            self._for_due.setdefault(key, {})[wakeup] = until

    def wait_for_end(self, wakeup: Wakeup) -> None:
        """Wake `wakeup` when any question ends, with or without a decision."""
        self._for_end.add(wakeup)

    def remove_due(self, keys: Iterable[QuestionKey], wakeup: Notify) -> None:
        """Remove `wakeup` from the calls that wait for a due question, if it is there."""
        for key in keys:
            wakeups = self._for_due.get(key)
            if wakeups is not None:
                wakeups.pop(wakeup, None)
                if not wakeups:
                    del self._for_due[key]

    def remove_end(self, wakeup: Wakeup) -> None:
        """Remove `wakeup` from the calls that wait for the end of a question, if it is there."""
        self._for_end.discard(wakeup)

    def sleep_beyond(self, due: float) -> bool:
        """Return whether any call would otherwise sleep beyond the time `due`."""
        return any(due < until for wakeups in self._for_due.values() for until in wakeups.values())

    def wake_for_due(self, keys: Iterable[QuestionKey], due: float) -> None:
        """Wake the calls that wait for a question under `keys` and would sleep beyond the time
        `due`.
        """
        for key in keys:
            for wakeup, until in self._for_due.get(key, {}).items():
                if due < until:
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
