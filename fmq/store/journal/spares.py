"""Spares: segments that are made ahead of use, under another name.

A roll takes one, so it does not wait for the disk to find room. Writes over zeros that are on disk
sync up to three times faster than writes into room that is only reserved. But zeroing writes
everything twice. So a journal that grows faster than `ZEROED_BYTES_PER_SECOND_MAX` gets reserved
room only, and its large appends sync as fast there.

The spares are also the reserve for decisions on a full disk. An ordinary append does not take the
last `needed` ones, nor those that are set `aside` for the retention that makes room.
"""

from __future__ import annotations

import contextlib
import errno
import threading
from collections.abc import Iterable
from itertools import count

from fmq.arguments.options import SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN
from fmq.errors import StorageFull, Unreadable
from fmq.machine.disk import Directory, File, free, is_full
from fmq.store.bytes.record import ALIGNMENT
from fmq.store.journal.segment import HEADER_BYTES

SUFFIX = ".spare"
FIRST_SPARE = f"{0:06d}{SUFFIX}"
UNPROVEN = ".new"  # the suffix while a spare is being made, or turned into a segment
ZEROED_BYTES_PER_SECOND_MAX = 320 << 20
ZEROS = bytes(1 << 20)
# This process, or the machine, has too many open files.
NO_MORE_FILES = (errno.EMFILE, errno.ENFILE)


class Spare:
    """An empty file of a segment's size, with its name until it becomes a segment."""

    __slots__ = ("capacity", "file", "name")

    def __init__(self, name: str, file: File, capacity: int) -> None:
        self.name = name
        self.file = file
        self.capacity = capacity


class Spares:
    """The spares of a directory. Any thread may call it."""

    def __init__(self, directory: Directory, capacity: int) -> None:
        self._directory = directory
        self._capacity = capacity
        self._ready: list[Spare] = []
        # taken for a roll that has not happened yet; `close` closes them
        self._given: list[Spare] = []
        # Spares of another size, for a decision that finds no other room.
        self._odd: list[Spare] = []
        self._numbers = count()
        self._taken: set[str] = set()  # the numbers in the names of an earlier engine's spares
        self.lock = threading.Lock()
        self.needed = self.aside = 0
        self.made = 0
        """How many were made: more of them say that there is room again."""
        self.failed: str | None = None
        """Why the last one could not be made ahead."""

    def adopt(self, names: Iterable[str], *, any_size: bool = False) -> None:
        """Take over the spares of an earlier engine that are complete and all zeros. With
        `any_size`, also those of another size.
        """
        for name in sorted(filter(is_spare, names)):
            self._taken.add(name)
            with contextlib.suppress(OSError):  # leave a file alone that cannot be read
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
        """Return whether there are fewer spares than are reserved. Room for new ones may have been
        freed.
        """
        return len(self._ready) < self.needed + self.aside

    def take(self, append_bytes: int, *, ordinary: bool, makes_room: bool = False) -> Spare:
        """Return a spare for the next segment, which begins with an append of `append_bytes`. Make
        one if none is ready. An append that `makes_room` may take reserved ones. Raises
        StorageFull if the disk is full.
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
        """Remove a spare to free its room. Return False if there is none, or none that an
        `ordinary` append may use.
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
        """Stop counting the spare, which is the segment being written now. Closing the segment
        closes its file.
        """
        with self.lock:
            self._given.remove(spare)

    def reserve(self, needed: int) -> None:
        """Keep at least `needed` spares from now on. Raises StorageFull, with nothing changed."""
        with self.lock:
            while len(self._ready) < needed + self.aside:
                self._make(zeros=False)
            self.needed = needed

    def make_ahead(self, *, zeros: bool) -> bool:
        """Make the spare for the next roll. Return False if the disk has no room."""
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
            self._add(spare)
        return True

    def _remove_odd(self) -> None:
        while self._odd:
            spare = self._odd.pop()
            spare.file.close()
            with contextlib.suppress(OSError):  # the next engine will look at this file
                self._directory.remove(spare.name)

    def _make(self, *, zeros: bool) -> None:
        self._add(self._create(zeros=zeros))

    def _add(self, spare: Spare) -> None:
        self._ready.append(spare)
        self.made += 1
        self.failed = None

    def _create(self, *, zeros: bool) -> Spare:
        # Drawing a number is one step, so two threads get different names.
        name = f"{next(self._numbers):06d}{SUFFIX}"
        while name in self._taken:
            name = f"{next(self._numbers):06d}{SUFFIX}"
        try:
            file = create_spare(self._directory, name, self._capacity, zeros=zeros)
        except OSError as error:
            if error.errno in NO_MORE_FILES:
                # The disk is not at fault, and nothing was planned: refuse the call, as on a full
                # disk.
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
        """Close the files, and leave them for the next engine."""
        with contextlib.ExitStack() as stack:
            for spare in (*self._ready, *self._odd, *self._given):
                stack.callback(spare.file.close)
        self._ready.clear()
        self._odd.clear()
        self._given.clear()


def create_spare(directory: Directory, name: str, capacity: int, *, zeros: bool) -> File:
    """Create a spare. It gets its name once it is known to be sound.

    In a file whose sync has failed, later writes may never become durable, and the next engine
    could not tell.
    """
    unproven = name + UNPROVEN
    file = directory.create(unproven)
    try:
        file.allocate(capacity)
        if zeros:
            file.write_zeros(capacity)
        # A synced write does not make the length of the file durable.
        file.sync()
        directory.rename(unproven, name)
    except OSError:
        with contextlib.suppress(OSError):  # the next engine removes a file that this one cannot
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
    """Return whether a segment may have this size."""
    return SEGMENT_BYTES_MIN <= size <= SEGMENT_BYTES_MAX and size % ALIGNMENT == 0


def is_spare(name: str) -> bool:
    """Return whether `name` is the name of a spare."""
    number = name.removesuffix(SUFFIX)
    return number != name and number.isdecimal() and number.isascii()


def is_unproven(name: str) -> bool:
    """Return whether `name` is the name of a spare that was not finished, or was being turned into
    a segment.
    """
    return name.endswith(UNPROVEN) and is_spare(name.removesuffix(UNPROVEN))


def all_zeros(file: File, size: int) -> bool:
    for offset in range(0, size, len(ZEROS)):
        wanted = min(len(ZEROS), size - offset)
        if file.read(offset, wanted) != ZEROS[:wanted]:
            return False
    return True
