"""The power supply that everything on one disk in memory hangs on.

It counts the operations that change something and fails at the one it was told to. It is also
the lock that makes the disk safe for threads: `with power:` holds it, and raises if the power
is off.
"""

from __future__ import annotations

from threading import Lock
from typing import Self

from fmq.testing.changes import Write
from fmq.testing.nodes import Inode


class PowerLoss(BaseException):
    """The power failed, or is off already. No Exception: nobody may handle it and go on."""


class Power:
    """Runs out at operation number `crash_at`, counted from 0."""

    def __init__(self, crash_at: int | None, first_number: int, *, honest: bool) -> None:
        self.crash_at = crash_at
        self.honest = honest
        self.history: list[str] = []
        self.interrupted: tuple[Inode, Write] | None = None
        self.drawn = 0  # how often random bytes were asked for
        self.lock = Lock()
        self._first_number = first_number
        self._is_off = False

    def __enter__(self) -> Self:
        self.lock.acquire()
        if self._is_off:
            self.lock.release()
            raise PowerLoss("the power is off")
        return self

    def __exit__(self, *_: object) -> None:
        self.lock.release()

    @property
    def number(self) -> int:
        """The number of the next operation; after a kill it goes on counting."""
        return self._first_number + len(self.history)

    @property
    def fails_next(self) -> bool:
        return self.crash_at is not None and len(self.history) >= self.crash_at

    def spend(self, operation: str) -> None:
        """Count an operation that is about to happen, or fail before it does."""
        if self.fails_next:
            self._is_off = True
            raise PowerLoss(f"before operation {len(self.history)}: {operation}")
        self.history.append(operation)
