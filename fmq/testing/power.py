"""The power supply that everything on one disk in memory hangs on.

It counts the operations that change something and fails at the one it was told to. It is also
the lock that makes the disk safe for threads: `with power:` holds it, and raises if the power
is off.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import Self

from fmq.testing.changes import Write
from fmq.testing.nodes import Inode

Writing = tuple[Inode, Write]


class PowerLoss(BaseException):
    """The power failed, or is off already. No Exception: nobody may handle it and go on."""


@dataclass(frozen=True, slots=True)
class Past:
    """What was done before a crash, and before those before it."""

    first_number: int
    count: int
    history: list[str]
    before: Past | None

    def operation(self, number: int) -> str | None:
        """The line of the operation with this number, if there was one."""
        past: Past | None = self
        while past is not None and number < past.first_number:
            past = past.before
        at = -1 if past is None else number - past.first_number
        return past.history[at] if past is not None and at < past.count else None


class Power:
    """Runs out at operation number `crash_at`, counted from 0."""

    def __init__(
        self, crash_at: int | None, first_number: int, *, honest: bool, past: Past | None = None
    ) -> None:
        self.crash_at = crash_at
        self.honest = honest
        self.past = past
        self.history: list[str] = []
        self.interrupted: Writing | None = None
        self.drawn = 0  # how often random bytes were asked for
        self.watcher: Callable[[Writing | None], None] | None = None
        self.lock = Lock()
        self.first_number = first_number
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
        return self.first_number + len(self.history)

    def spend(self, operation: str, writing: Writing | None = None) -> None:
        """Count an operation that is about to happen, or fail before it does.

        `writing` is what it writes and then syncs: the power may fail in between.
        """
        if self.crash_at is not None and len(self.history) >= self.crash_at:
            self.fail(writing)
            raise PowerLoss(f"before operation {len(self.history)}: {operation}")
        if self.watcher is not None:
            self.watcher(writing)
        self.history.append(operation)

    def so_far(self) -> Past:
        """What has been done on this disk, and on those that it came from."""
        return Past(self.first_number, len(self.history), self.history, self.past)

    def fail(self, writing: Writing | None = None) -> None:
        """Be off from now on."""
        self._is_off = True
        if writing is not None:
            inode, write = self.interrupted = writing
            inode.interrupt(write)
