"""The one door to time. Nothing else in fmq asks what time it is, or waits.

Three things are told apart: `time_us` is the wall clock, shown to people and written into
records; `monotonic` measures leases and intervals and never goes back; `wait` sleeps on a
lock that somebody else will release. A test hands in `fmq.testing.FakeClock` instead.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from threading import TIMEOUT_MAX
from typing import Protocol

FIRST, LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


class Waitable(Protocol):
    """What `wait` sleeps on: a lock taken already, released by whoever wakes the sleeper."""

    def acquire(self, blocking: bool = ..., timeout: float = ...) -> bool: ...


class Clock(Protocol):
    """What the engine asks of time."""

    def time_us(self) -> int:
        """Microseconds since 1970, UTC, by the wall clock; may jump."""

    def monotonic(self) -> float:
        """Seconds since some moment; never goes back."""

    def wait(self, lock: Waitable, timeout: float | None) -> bool:
        """Take `lock` within `timeout` seconds; False if nobody released it by then."""


class SystemClock:
    """The machine's own clocks."""

    @staticmethod
    def time_us() -> int:
        return time.time_ns() // 1000

    monotonic = staticmethod(time.monotonic)

    @staticmethod
    def wait(lock: Waitable, timeout: float | None) -> bool:
        if timeout is None or timeout > TIMEOUT_MAX:
            return lock.acquire()
        return lock.acquire(True, max(0.0, timeout))


def as_datetime(time_us: int) -> datetime:
    """The moment as people and programs outside want it: aware, in UTC. What lies before or behind
    all that a datetime can say, which no clock gives that is right, is the first or the last one.
    """
    seconds, micros = divmod(time_us, 1_000_000)
    try:
        return datetime.fromtimestamp(seconds, UTC).replace(microsecond=micros)
    except (ValueError, OverflowError, OSError):
        return LAST if time_us > 0 else FIRST


def as_text(moment: datetime) -> str:
    """The moment as an error's text has it: ISO 8601, in UTC, to the second."""
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def as_us(moment: datetime) -> int:
    """Microseconds since 1970; a moment that names no time zone is one of UTC."""
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return (aware - EPOCH) // MICROSECOND
