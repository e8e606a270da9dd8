"""The power supply of everything on one disk in memory.

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
    """The power failed, or is off already. It is no Exception, so that handlers do not go on."""


class Past(NamedTuple):
    """The operations of a life that ended with a crash, and of the lives before it."""

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
    """The power of a disk. It fails at operation number `crash_at`, counted from 0."""

    def __init__(
        self, crash_at: int | None, first_number: int, *, honest: bool, past: Past | None = None
    ) -> None:
        self.crash_at = crash_at
        self.honest = honest
        self.lost = ""  # the operation at which the power failed
        self._past = past
        self.history: list[str] = []
        self.interrupted: tuple[Inode, Write] | None = None
        # called before each operation, with its line of the history
        self.watcher: Callable[[str], None] | None = None
        self.boot = 0  # how many power cuts there were
        self.opened: set[str] = set()  # the paths of all files that were opened
        self.drawn = 0  # how often random bytes were drawn
        self.lock = RLock()  # an RLock, for a watcher that copies the disk
        self._first_number = first_number
        self.is_off = False
        self.was_used = False  # True if visible bytes may have changed

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
        """Return the number of the next operation. After a kill the count goes on."""
        return self._first_number + len(self.history)

    @property
    def fails_next(self) -> bool:
        return self.crash_at is not None and len(self.history) >= self.crash_at

    @property
    def may_end(self) -> bool:
        """Return whether a watcher asks what a crash at the next operation leaves."""
        return self.fails_next or self.watcher is not None

    def interrupt(self, inode: Inode, write: Write) -> None:
        """Let the power fail between the write and the sync of the next operation, if it fails
        there.
        """
        self.interrupted = inode, write
        inode.interrupt(write)

    def spend(self, operation: str) -> None:
        """Count an operation that is about to happen. Raises PowerLoss if the power fails before
        it.
        """
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
        """Turn the power off. `lost` names the operation that does not happen."""
        self.is_off, self.lost = True, lost

    def so_far(self) -> Past:
        """Return all operations on this disk, and on the disks that it was copied from."""
        count = len(self.history)
        return Past(self._first_number, count, self.history, self.lost, self._past)
