"""The power supply that everything on one disk in memory hangs on.

It counts the operations that change something and fails at the one it was told to. It is also
the lock that makes the disk safe for threads: `with power:` holds it, and raises if the power
is off.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import RLock
from typing import NamedTuple, Self

from fmq.testing.changes import Write
from fmq.testing.nodes import Inode


class PowerLoss(BaseException):
    """The power failed, or is off already. No Exception: a handler must not go on."""


class Past(NamedTuple):
    """What was done before a crash, and before those before it."""

    first_number: int
    operations: int
    history: list[str]
    lost: str
    before: Past | None

    def name_of(self, number: int) -> str:
        if self.before is not None and number < self.first_number:
            return self.before.name_of(number)
        at = number - self.first_number
        if at == self.operations and self.lost:
            return self.lost
        return self.history[at] if 0 <= at < self.operations else "one of an earlier life"


class Power:
    """Runs out at operation number `crash_at`, counted from 0."""

    def __init__(
        self, crash_at: int | None, first_number: int, *, honest: bool, past: Past | None = None
    ) -> None:
        self.crash_at = crash_at
        self.honest = honest
        self.lost = ""  # the operation that met the power cut
        self._past = past
        self.history: list[str] = []
        self.interrupted: tuple[Inode, Write] | None = None
        self.watcher: Callable[[str], None] | None = None  # told of each operation before it
        self.boot = 0  # how many power cuts there have been
        self.opened: set[str] = set()  # the paths of all files that were opened
        self.drawn = 0  # how often random bytes were asked for
        self.lock = RLock()  # taken again by a watcher that copies the disk
        self._first_number = first_number
        self.is_off = False
        self.was_used = False  # whether anything that is seen may have changed

    def __enter__(self) -> Self:
        self.lock.acquire()
        if self.is_off:
            self.lock.release()
            raise PowerLoss("the power is off")
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        self.lock.release()

    @property
    def number(self) -> int:
        """The number of the next operation; after a kill it goes on counting."""
        return self._first_number + len(self.history)

    @property
    def fails_next(self) -> bool:
        return self.crash_at is not None and len(self.history) >= self.crash_at

    @property
    def may_end(self) -> bool:
        """Return whether a watcher asks what a crash at the next operation leaves."""
        return self.fails_next or self.watcher is not None

    def interrupt(self, inode: Inode, write: Write) -> None:
        """Let the next operation be interrupted between its write and its sync, if it is."""
        self.interrupted = inode, write
        inode.interrupt(write)

    def spend(self, operation: str) -> None:
        """Count an operation that is about to happen, or fail before it does."""
        if self.watcher is not None:
            self.watcher(operation)
        if self.fails_next:
            self.stop(operation)
            raise PowerLoss(f"before operation {len(self.history)}: {operation}")
        if self.interrupted is not None:
            inode, write = self.interrupted
            inode.resume(write)
            self.interrupted = None
        self.history.append(operation)
        self.was_used = True

    def stop(self, lost: str = "") -> None:
        """Be off from now on; `lost` is the operation that does not happen any more."""
        self.is_off, self.lost = True, lost

    def so_far(self) -> Past:
        """Return the operations on this disk, and on those that it came from."""
        count = len(self.history)
        return Past(self._first_number, count, self.history, self.lost, self._past)
