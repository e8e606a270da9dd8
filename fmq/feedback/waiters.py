"""Who waits for a question to become due, or for the end of one, and what wakes them.

Guarded by the engine's lock.
"""

from __future__ import annotations

from collections.abc import Iterable

from fmq.feedback.schedule import Key
from fmq.tx.messages import Wakeup


class Asker(Wakeup):
    """One call that waits until something under one of its keys is due."""

    __slots__ = ("keys", "until")

    def __init__(self, keys: Iterable[Key]) -> None:
        super().__init__()
        self.keys = keys
        self.until = 0.0  # when it looks again by itself


class Waiters:
    """All who wait at one feedback service."""

    def __init__(self) -> None:
        self._askers: dict[Key, set[Asker]] = {}
        self._watchers: set[Wakeup] = set()

    def ask(self, asker: Asker, until: float) -> None:
        """It waits until `until`, or until something is due sooner."""
        asker.until = until
        for key in asker.keys:
            self._askers.setdefault(key, set()).add(asker)

    def watch(self, watcher: Wakeup) -> None:
        """It waits for the end of some question, whatever the end is."""
        self._watchers.add(watcher)

    def forget(self, asker: Asker) -> None:
        """It waits no more, if it ever did."""
        for key in asker.keys:
            askers = self._askers.get(key)
            if askers is not None:
                askers.discard(asker)
                if not askers:
                    del self._askers[key]

    def forget_watcher(self, watcher: Wakeup) -> None:
        self._watchers.discard(watcher)

    def sleeps_beyond(self, due: float) -> bool:
        """Whether anybody would sleep longer than until `due`."""
        return any(due < asker.until for askers in self._askers.values() for asker in askers)

    def due(self, keys: Iterable[Key], due: float) -> None:
        """Something under `keys` is due at `due`: those who would sleep longer look again."""
        for key in keys:
            for asker in self._askers.get(key, ()):
                if due < asker.until:
                    asker()

    def ended(self) -> None:
        """A question has come to its end."""
        for watcher in self._watchers:
            watcher()

    def wake_all(self) -> None:
        """Everybody looks again: the engine closes, or has failed."""
        for askers in self._askers.values():
            for asker in askers:
                asker()
        self.ended()
