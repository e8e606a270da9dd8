"""The one door to time. Nothing else in fmq reads a clock, or waits.

There are three methods. `time_us` is the wall clock, shown to people and written into records.
`monotonic` measures leases and intervals and never goes back. `wait` sleeps on a lock that another
thread will release. Tests pass `fmq.testing.FakeClock` instead.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from threading import TIMEOUT_MAX, Lock
from typing import Protocol

FIRST, LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


class Waitable(Protocol):
    """What `wait` sleeps on: a lock that is held, and that another thread releases."""

    def acquire(self, blocking: bool = ..., timeout: float = ...) -> bool: ...


class Clock(Protocol):
    """The clock that an engine uses."""

    def time_us(self) -> int:
        """Return microseconds since 1970, UTC, by the wall clock, which may jump."""

    def monotonic(self) -> float:
        """Return seconds since a fixed moment. They never go back."""

    def wait(self, lock: Waitable, timeout: float | None) -> bool:
        """Wait until `lock` is released, and take it. Return False if it was not released within
        `timeout` seconds.
        """


class SystemClock:
    """The machine's own clocks."""

    @staticmethod
    def time_us() -> int:
        return time.time_ns() // 1000

    monotonic = staticmethod(time.monotonic)
    monotonic_ns = staticmethod(time.monotonic_ns)

    @staticmethod
    def wait(lock: Waitable, timeout: float | None) -> bool:
        if timeout is None or timeout > TIMEOUT_MAX:
            return lock.acquire()
        return lock.acquire(True, max(0.0, timeout))


def ticks_of(clock: Clock) -> Callable[[], int]:
    """Return a function that returns nanoseconds since a fixed moment, which never go back. The
    function is called for each write, so a clock may have a fast one of its own: that of
    SystemClock is written in C.
    """
    own: Callable[[], int] | None = getattr(clock, "monotonic_ns", None)
    return own or (lambda: round(clock.monotonic() * 1e9))


def sleep(clock: Clock, seconds: float) -> None:
    """Wait for `seconds`."""
    never_released = Lock()
    never_released.acquire()
    clock.wait(never_released, seconds)


def as_datetime(time_us: int) -> datetime:
    """Return a time as an aware datetime in UTC. A time that no datetime can hold, which only a
    wrong clock gives, becomes the first or the last datetime.
    """
    seconds, micros = divmod(time_us, 1_000_000)
    try:
        return datetime.fromtimestamp(seconds, UTC).replace(microsecond=micros)
    except (ValueError, OverflowError, OSError):
        return LAST if time_us > 0 else FIRST


def as_text(moment: datetime) -> str:
    """Return a time for the text of an error: ISO 8601, in UTC, to the second."""
    try:
        moment = moment.astimezone(UTC)
    except OverflowError:  # the time is beyond the calendar in UTC
        return moment.isoformat(timespec="seconds")
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def as_us(moment: datetime) -> int:
    """Return microseconds since 1970. A datetime without a time zone is taken as UTC."""
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return (aware - EPOCH) // MICROSECOND
