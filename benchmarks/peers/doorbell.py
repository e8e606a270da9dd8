"""How a thread learns that another thread of its process has sent something, for peers
that do not tell."""

from __future__ import annotations

import threading


class Doorbell:
    """Counts what was sent; a waiter sleeps until the count has passed what it has seen."""

    def __init__(self) -> None:
        self._rung = 0
        self._changed = threading.Condition()

    def ring(self) -> None:
        with self._changed:
            self._rung += 1
            self._changed.notify_all()

    def wait_beyond(self, seen: int) -> int:
        """The count, once it is more than `seen`."""
        with self._changed:
            while self._rung <= seen:
                self._changed.wait()
            return self._rung
