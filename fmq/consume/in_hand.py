"""Draining a consumer: it takes nothing new, and a caller waits for what is in hand."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

from fmq.clock import Clock


class Draining:
    """Whether one consumer is drained, and the calls that wait until nothing is in hand."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiters: list[Lock] = []
        self.is_on = False

    def changed(self) -> None:
        """Let the calls that wait look again, because something is no longer in hand."""
        for lock in [*self._waiters]:
            if lock.locked():
                lock.release()

    def wait(self, look: Callable[[], tuple[int, float]], timeout: float) -> bool:
        """Return True once nothing is in hand, or False after `timeout` seconds. `look` returns how
        much is in hand, and when to look again even without a change.
        """
        deadline = self._clock.monotonic() + timeout
        while True:
            lock = Lock()
            lock.acquire()
            self._waiters.append(lock)
            try:
                count, until = look()
                now = self._clock.monotonic()
                if not count or now >= deadline:
                    return not count
                self._clock.wait(lock, max(min(until, deadline) - now, 0.0))
            finally:
                self._waiters.remove(lock)
