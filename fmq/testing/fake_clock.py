"""A clock that stands still until a test moves it.

The thread that made the clock is the test's own: its waits move time on instead of sleeping.
Other threads wait as they would, but by this clock: until somebody releases their lock, or
moves time past their deadline. So a background thread does nothing before the test lets it.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from threading import Condition, Lock, get_ident

from fmq.basics.clock import Waitable

START_US = 1_767_225_600_000_000  # the beginning of the year 2026, in microseconds since 1970
TICK_SECONDS = 0.000_001
LOOK_AGAIN_SECONDS = 0.0005  # real seconds until another thread notices that time moved
PATIENCE_SECONDS = 20.0  # real seconds; only a failing test waits so long


class FakeClock:
    """A Clock that a test moves. Any thread may call it."""

    def __init__(self, start_us: int = START_US) -> None:
        self._wall_us = start_us
        self._elapsed_us = 0
        self._owner = get_ident()
        self._lock = Lock()
        self._wait_begins = Condition()
        self._waits = 0  # how many waits of other threads have begun

    def time_us(self) -> int:
        return self._wall_us + self._elapsed_us

    def monotonic(self) -> float:
        return self._elapsed_us / 1_000_000

    def monotonic_ns(self) -> int:
        return self._elapsed_us * 1000

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass."""
        assert seconds >= 0, "time does not go back; set_wall_clock does"
        with self._lock:
            self._elapsed_us += round(seconds * 1_000_000)

    def set_wall_clock(self, time_us: int) -> None:
        """Set the wall clock. `monotonic` does not change."""
        with self._lock:
            self._wall_us = time_us - self._elapsed_us

    def wait(self, lock: Waitable, timeout: float | None) -> bool:
        """Take `lock` if it is free. If not, let `timeout` pass at once and try once more.

        Without a timeout it really waits, as nothing but another thread can end that. In a
        thread that did not make this clock it waits until `advance` has moved past `timeout`.
        """
        if get_ident() != self._owner:
            return self._wait_for_others(
                lock, inf if timeout is None else self.monotonic() + timeout
            )
        if timeout is None or timeout == inf:
            return lock.acquire()
        if lock.acquire(False):
            return True
        if timeout > 0:
            # At least one tick: a call that waits for a moment between two ticks must get beyond
            # that moment.
            self.advance(max(TICK_SECONDS, timeout))
        return lock.acquire(False)

    def until(self, seen: Callable[[], object]) -> None:
        """Wait, in real time, until `seen()` is true. Raises AssertionError after a long time.

        It is asked at once, and again each time that another thread begins to wait on this clock:
        that thread has then done all that it could.
        """
        while True:
            waits = self._waits
            if seen():
                return
            with self._wait_begins:
                while self._waits == waits:
                    begun = self._wait_begins.wait(PATIENCE_SECONDS)
                    assert begun, "no thread did what is waited for"

    def _wait_for_others(self, lock: Waitable, deadline: float) -> bool:
        with self._wait_begins:
            self._waits += 1
            self._wait_begins.notify_all()
        if deadline == inf:
            return lock.acquire()
        while self.monotonic() < deadline:
            if lock.acquire(True, LOOK_AGAIN_SECONDS):
                return True
        return lock.acquire(False)
