"""Segments made ahead of need, under a temporary name.

A roll takes one, so that it never waits for the disk to find room. Bytes written over zeros
that are already on the disk sync up to three times faster than bytes in merely reserved room;
but zeroing costs a second write of everything, so a journal that grows faster than
`ZEROED_BYTES_PER_SECOND_MAX` gets reserved room only: its large appends sync as fast there.

The spares are also the reserve from which decisions are paid when the disk is full: an
ordinary append may not take the last `needed` ones.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable
from itertools import count

from fmq.disk import Directory, File, is_full
from fmq.errors import StorageFull

SUFFIX = ".spare"
ZEROED_BYTES_PER_SECOND_MAX = 320 << 20
ZEROS = bytes(1 << 20)


class Spare:
    """An empty file of the size of a segment, and the name it has until it becomes one."""

    __slots__ = ("capacity", "file", "name")

    def __init__(self, name: str, file: File, capacity: int) -> None:
        self.name = name
        self.file = file
        self.capacity = capacity


class Spares:
    """The spare segments of a directory. Safe for threads."""

    def __init__(self, directory: Directory, capacity: int) -> None:
        self._directory = directory
        self._capacity = capacity
        self._ready: list[Spare] = []
        self._given: list[Spare] = []  # and not yet a segment: they are still ours to close
        self._numbers = count()
        self._taken: set[str] = set()  # names that an earlier engine gave
        self._lock = threading.Lock()
        self.needed = 0
        self.failed: str | None = None

    def adopt(self, names: Iterable[str]) -> None:
        """Take over what an earlier engine left: kept if it is whole and all zeros."""
        for name in sorted(filter(is_spare, names)):
            self._taken.add(name)
            file = self._directory.open(name, write=True)
            if file.size() == self._capacity and all_zeros(file, self._capacity):
                self._ready.append(Spare(name, file, self._capacity))
            else:
                file.close()
                self._directory.remove(name)

    def count(self) -> int:
        return len(self._ready)

    def take(self, *, ordinary: bool) -> Spare:
        """A spare for the next segment, made now if none is ready; StorageFull."""
        with self._lock:
            wanted = 1 + (self.needed if ordinary else 0)
            while len(self._ready) < wanted:
                if not ordinary and self._ready:
                    break
                self._make(zeros=False)
            spare = self._ready.pop(0)
            self._given.append(spare)
            return spare

    def opened(self, spare: Spare) -> None:
        """It is the segment being written now, and closed with it."""
        with self._lock:
            self._given.remove(spare)

    def reserve(self, needed: int) -> None:
        """Have at least `needed` spares from now on, or raise StorageFull and change nothing."""
        with self._lock:
            while len(self._ready) < needed:
                self._make(zeros=False)
            self.needed = needed

    def make_ahead(self, *, zeros: bool) -> bool:
        """Make the one that the next roll will take; False if there was no room for it."""
        with self._lock:
            if len(self._ready) > self.needed:
                return True
        try:
            spare = self._create(zeros=zeros)
        except StorageFull as error:
            self.failed = str(error)
            return False
        with self._lock:
            self._ready.append(spare)
            self.failed = None
        return True

    def _make(self, *, zeros: bool) -> None:
        self._ready.append(self._create(zeros=zeros))

    def _create(self, *, zeros: bool) -> Spare:
        # Two threads may be at it: drawing a number is one step.
        name = f"{next(self._numbers):06d}{SUFFIX}"
        while name in self._taken:
            name = f"{next(self._numbers):06d}{SUFFIX}"
        file = None
        try:
            file = self._directory.create(name)
            file.allocate(self._capacity)
            if zeros:
                file.write_zeros(self._capacity)
            # Later synced writes make durable what they write, and not that the file is there.
            file.sync()
        except OSError as error:
            if file is not None:
                file.close()
                with contextlib.suppress(OSError):
                    self._directory.remove(name)
            if not is_full(error):
                raise
            raise StorageFull(
                f"{self._directory.path}: no room for the next segment ({self._capacity:,} bytes)."
                " The call was refused whole and nothing was lost; reading, and deciding what is"
                " undecided, still work. Free some room and call again."
            ) from error
        return Spare(name, file, self._capacity)

    def close(self) -> None:
        """Let go of the files; they stay for the next engine."""
        for spare in (*self._ready, *self._given):
            spare.file.close()
        self._ready.clear()
        self._given.clear()


def is_spare(name: str) -> bool:
    """Whether `name` is one that `Spares` gives."""
    number = name.removesuffix(SUFFIX)
    return number != name and number.isdecimal() and number.isascii()


def all_zeros(file: File, size: int) -> bool:
    for offset in range(0, size, len(ZEROS)):
        wanted = min(len(ZEROS), size - offset)
        if file.read(offset, wanted) != ZEROS[:wanted]:
            return False
    return True
