"""Segments made ahead of need, under a temporary name.

A roll takes one, so that it never waits for the disk to find room. Bytes written over zeros
that are already on the disk sync up to three times faster than bytes in merely reserved room;
but zeroing costs a second write of everything, so a journal that grows faster than
`ZEROED_BYTES_PER_SECOND_MAX` gets reserved room only: its large appends sync as fast there.

The spares are also the reserve from which decisions are paid when the disk is full: an
ordinary append may not take the last `needed` ones. Nor may it take those set `aside`, with which
retention begins to make room there.
"""

from __future__ import annotations

import contextlib
import errno
import threading
from collections.abc import Iterable
from itertools import count

from fmq.disk import Directory, File, free, is_full
from fmq.errors import StorageFull, Unreadable
from fmq.options import SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN
from fmq.store.record import ALIGNMENT
from fmq.store.segment import HEADER_BYTES

SUFFIX = ".spare"
FIRST_SPARE = f"{0:06d}{SUFFIX}"
UNPROVEN = ".new"  # behind the name of one that is being made, or becomes a segment
ZEROED_BYTES_PER_SECOND_MAX = 320 << 20
ZEROS = bytes(1 << 20)
NO_MORE_FILES = (errno.EMFILE, errno.ENFILE)  # of this process, or of the machine


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
        self._odd: list[Spare] = []  # of another size: for a decision that finds no room else
        self._numbers = count()
        self._taken: set[str] = set()  # names that an earlier engine gave
        self.lock = threading.Lock()
        self.needed = self.aside = 0
        self.failed: str | None = None

    def adopt(self, names: Iterable[str], *, any_size: bool = False) -> None:
        """Take over what an earlier engine left: kept if it is whole and all zeros; with `any_size`
        also if it made them larger or smaller.
        """
        for name in sorted(filter(is_spare, names)):
            self._taken.add(name)
            with contextlib.suppress(OSError):  # what cannot be read is left alone
                self._adopt(name, any_size=any_size)

    def _adopt(self, name: str, *, any_size: bool) -> None:
        file = self._directory.open(name, write=True)
        size, good = 0, False
        try:
            size = file.size()
            wanted = size == self._capacity
            good = (wanted or (any_size and could_be_segment(size))) and all_zeros(file, size)
        finally:
            if not good:
                file.close()
        if good:
            (self._ready if wanted else self._odd).append(Spare(name, file, size))
        else:
            self._directory.remove(name)

    def count(self) -> int:
        return len(self._ready)

    @property
    def lacks(self) -> bool:
        """Whether fewer are there than were set aside: what took them has left room for more."""
        return len(self._ready) < self.needed + self.aside

    def take(self, append_bytes: int, *, ordinary: bool, makes_room: bool = False) -> Spare:
        """A spare for the next segment, which begins with an append of `append_bytes`, made now if
        none is ready; StorageFull. What `makes_room` may have those set aside.
        """
        with self.lock:
            try:
                wanted = 1
                if ordinary:
                    wanted += self.needed + (0 if makes_room else self.aside)
                while len(self._ready) < wanted:
                    if not ordinary and self._ready:
                        break
                    self._make(zeros=False)
                spare = self._ready.pop(0)
            except StorageFull:
                fits = [odd for odd in self._odd if append_bytes <= odd.capacity - HEADER_BYTES]
                if ordinary:
                    raise
                if not fits:
                    raise self._none_is_left() from None
                spare = fits[0]
                self._odd.remove(spare)
            self._given.append(spare)
            return spare

    def _none_is_left(self) -> StorageFull:
        return StorageFull(
            f"{self._directory.path}: no room for the next segment ({self._capacity:,} bytes), "
            "which this decision needs; what was set aside for it is gone: recovery or a roll has "
            "needed it, and the room was taken before it could be made up for. Nothing was changed "
            "and nothing was lost. Free some room and decide again; a roll back takes less of it."
        )

    def give_up(self, *, ordinary: bool) -> bool:
        """Let the directory have the room of one; False if there is none, or none for what is
        `ordinary`.
        """
        with self.lock:
            allowed = not ordinary or len(self._ready) > self.needed + self.aside
            spares = self._odd or (self._ready if allowed else [])
            if not spares:
                return False
            spare = spares.pop()
            spare.file.close()
            free(self._directory, spare.name)
            return True

    def opened(self, spare: Spare) -> None:
        """It is the segment being written now, and closed with it."""
        with self.lock:
            self._given.remove(spare)

    def reserve(self, needed: int) -> None:
        """Have at least `needed` spares from now on, or raise StorageFull and change nothing."""
        with self.lock:
            while len(self._ready) < needed + self.aside:
                self._make(zeros=False)
            self.needed = needed

    def make_ahead(self, *, zeros: bool) -> bool:
        """Make the one that the next roll will take; False if there was no room for it."""
        with self.lock:
            enough = len(self._ready) > self.needed + self.aside
            if enough or not self.needed:
                self._remove_odd()
            if enough:
                return True
        try:
            spare = self._create(zeros=zeros)
        except StorageFull as error:
            self.failed = str(error)
            return False
        with self.lock:
            self._ready.append(spare)
            self.failed = None
        return True

    def _remove_odd(self) -> None:
        while self._odd:
            spare = self._odd.pop()
            spare.file.close()
            with contextlib.suppress(OSError):  # then the next engine looks at it
                self._directory.remove(spare.name)

    def _make(self, *, zeros: bool) -> None:
        self._ready.append(self._create(zeros=zeros))

    def _create(self, *, zeros: bool) -> Spare:
        # Two threads may be at it: drawing a number is one step.
        name = f"{next(self._numbers):06d}{SUFFIX}"
        while name in self._taken:
            name = f"{next(self._numbers):06d}{SUFFIX}"
        try:
            file = create_spare(self._directory, name, self._capacity, zeros=zeros)
        except OSError as error:
            if error.errno in NO_MORE_FILES:
                # No word of the disk, and nothing was planned: a refusal, as of a full one.
                raise Unreadable(self._directory.path, error) from error
            if not is_full(error):
                raise
            raise StorageFull(
                f"{self._directory.path}: no room for the next segment ({self._capacity:,} bytes)."
                " The call was refused whole and nothing was lost; reading, and deciding what is"
                " undecided, still work. Free some room and call again."
            ) from error
        return Spare(name, file, self._capacity)

    def close(self) -> None:
        """Close the files, which stay for the next engine."""
        with contextlib.ExitStack() as stack:
            for spare in (*self._ready, *self._odd, *self._given):
                stack.callback(spare.file.close)
        self._ready.clear()
        self._odd.clear()
        self._given.clear()


def create_spare(directory: Directory, name: str, capacity: int, *, zeros: bool) -> File:
    """A new spare. It has its name once it is known to be sound: in a file whose sync has failed
    nothing may ever become durable, and the next engine could not tell.
    """
    unproven = name + UNPROVEN
    file = directory.create(unproven)
    try:
        file.allocate(capacity)
        if zeros:
            file.write_zeros(capacity)
        # Later synced writes make durable what they write, and not that the file is there.
        file.sync()
        directory.rename(unproven, name)
    except OSError:
        with contextlib.suppress(OSError):  # then the next engine does
            directory.remove(unproven)
        raise
    finally:
        file.close()
    try:
        return directory.open(name, write=True)
    except OSError:
        with contextlib.suppress(OSError):
            directory.remove(name)
        raise


def could_be_segment(size: int) -> bool:
    """Whether there are segments of that size."""
    return SEGMENT_BYTES_MIN <= size <= SEGMENT_BYTES_MAX and size % ALIGNMENT == 0


def is_spare(name: str) -> bool:
    """Whether `name` is one that `Spares` gives."""
    number = name.removesuffix(SUFFIX)
    return number != name and number.isdecimal() and number.isascii()


def is_unproven(name: str) -> bool:
    """Whether `name` is that of a spare that somebody did not finish, or did not get to use."""
    return name.endswith(UNPROVEN) and is_spare(name.removesuffix(UNPROVEN))


def all_zeros(file: File, size: int) -> bool:
    for offset in range(0, size, len(ZEROS)):
        wanted = min(len(ZEROS), size - offset)
        if file.read(offset, wanted) != ZEROS[:wanted]:
            return False
    return True
