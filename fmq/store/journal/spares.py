"""Spares: segments that are made ahead of use, under another name.

A roll takes one, so it does not wait for the disk to find room. Writes over zeros that are on disk
sync up to three times faster than writes into room that is only reserved. But zeroing writes
everything twice. So a journal that grows faster than `ZEROED_BYTES_PER_SECOND_MAX`, or by writes of
more than `ZEROED_WRITE_BYTES_MAX`, gets reserved room only: large writes sync as fast there.

A journal's segments grow with it, so spares have different sizes: a new one has that of the next
segment.

The spares are also the reserve for decisions on a full disk. An ordinary append does not take the
last `needed` ones that are large enough, nor those that are set `aside` for the retention that
makes room.
"""

from __future__ import annotations

import contextlib
import errno
import threading
from bisect import bisect_left, insort
from collections.abc import Iterable
from itertools import count
from operator import attrgetter

from fmq.arguments.options import SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN
from fmq.errors import StorageFull, Unreadable
from fmq.machine.disk import Directory, File, free, is_full
from fmq.store.bytes.record import ALIGNMENT
from fmq.store.journal.segment import HEADER_BYTES, capacity_at

SUFFIX = ".spare"
FIRST_SPARE = f"{0:06d}{SUFFIX}"
UNPROVEN = ".new"  # the suffix while a spare is being made, or turned into a segment
ZEROED_BYTES_PER_SECOND_MAX = 320 << 20
ZEROED_WRITE_BYTES_MAX = 1 << 20
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

    def __init__(self, directory: Directory, first: int, most: int) -> None:
        """`first` is the capacity of a journal's first segment, and `most` the capacity of its
        largest segment.
        """
        self._directory = directory
        self._first, self._most = first, most
        self._capacity = most  # the size of new spares
        self._ready: list[Spare] = []  # spares that are ready, the smallest first
        # spares of rolls that have not happened yet; `close` closes them
        self._given: list[Spare] = []
        self._numbers = count()
        self._taken: set[str] = set()  # the numbers in the names of an earlier engine's spares
        self.lock = threading.Lock()
        self.needed = self.aside = 0
        self._enough = 0  # the capacity that each of the `needed` spares has at least
        self.made = 0
        """How many were made: more of them say that there is room again."""
        self.failed: str | None = None
        """Why the last one could not be made ahead."""

    def adopt(self, names: Iterable[str], *, any_size: bool = False) -> None:
        """Take over the spares of an earlier engine that are complete and all zeros. With
        `any_size`, also take over spares that are larger than a segment of this engine.
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
            wanted = any_size or size <= self._most
            good = wanted and could_be_segment(size) and all_zeros(file, size)
        finally:
            if not good:
                file.close()
        if good:
            self._keep(Spare(name, file, size))
        else:
            self._directory.remove(name)

    def grow(self, position: int) -> None:
        """Make new spares as large as a segment that begins at `position`."""
        self._capacity = capacity_at(position, self._first, self._most)

    def count(self) -> int:
        """Return how many spares are large enough for what is reserved."""
        return len(self._ready) - bisect_left(self._ready, self._enough, key=capacity_of)

    @property
    def lacks(self) -> bool:
        """Return whether there are fewer spares than are reserved. Room for new ones may have been
        freed.
        """
        return self.count() < self.needed + self.aside

    def take(self, append_bytes: int, *, ordinary: bool, makes_room: bool = False) -> Spare:
        """Return a spare for the next segment, which begins with an append of `append_bytes`. Make
        one if none is ready. An append that `makes_room` may take reserved ones. Raises
        StorageFull if the disk is full.
        """
        with self.lock:
            kept = self.needed + (0 if makes_room else self.aside) if ordinary else 0
            try:
                while self.count() < kept:
                    self._make(self._enough)
                # `append_bytes` may be a guess that is too large.
                size = min(append_bytes + HEADER_BYTES, self._most)
                spare = self._fitting(size, kept) or self._make(size)
            except StorageFull:
                if ordinary:
                    raise
                raise self._none_is_left() from None
            self._ready.remove(spare)
            self._given.append(spare)
            return spare

    def _fitting(self, size: int, kept: int) -> Spare | None:
        """Return the smallest spare of at least `size` bytes that is not one of the `kept` ones."""
        is_free = self.count() > kept
        for spare in self._ready:
            if spare.capacity >= size and (is_free or spare.capacity < self._enough):
                return spare
        return None

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
            is_free = not ordinary or self.count() > self.needed + self.aside
            loose = [each for each in self._ready if is_free or each.capacity < self._enough]
            if not loose:
                return False
            self._ready.remove(loose[-1])
            loose[-1].file.close()
            free(self._directory, loose[-1].name)
            return True

    def opened(self, spare: Spare) -> None:
        """Stop counting the spare, which is the segment being written now. Closing the segment
        closes its file.
        """
        with self.lock:
            self._given.remove(spare)

    def need(self, needed: int, size: int) -> None:
        """Keep `needed` spares of at least `size` bytes from now on. Those that are lacking are
        made by `reserve`, or ahead.
        """
        self.needed, self._enough = needed, min(size, self._most)

    def reserve(self, needed: int, size: int) -> None:
        """Keep at least `needed` spares of at least `size` bytes from now on.

        Raises StorageFull, with nothing changed.
        """
        with self.lock:
            before = self.needed, self._enough
            self.need(needed, size)
            try:
                while self.count() < needed + self.aside:
                    self._make(self._enough)
            except BaseException:
                self.needed, self._enough = before
                raise

    def make_up(self) -> None:
        """Make the spares that are lacking. Raises StorageFull."""
        self.reserve(self.needed, self._enough)

    def make_ahead(self, *, zeros: bool) -> bool:
        """Make the spare for the next roll. Return False if the disk has no room."""
        with self.lock:
            if not self.needed:
                self._remove_oversized()
            lacks = self.lacks
            if not lacks and len(self._ready) > self.needed + self.aside:
                return True
        try:
            spare = self._create(self._enough if lacks else 0, zeros=zeros)
        except StorageFull as error:
            self.failed = str(error)
            return False
        with self.lock:
            self._keep(spare)
            self._count_made()
        return True

    def _remove_oversized(self) -> None:
        """Remove spares that are larger than a segment of this engine. An earlier engine had larger
        segments, and undecided transactions needed its spares until now.
        """
        for spare in [each for each in self._ready if each.capacity > self._most]:
            self._ready.remove(spare)
            spare.file.close()
            with contextlib.suppress(OSError):  # the next engine will look at this file
                self._directory.remove(spare.name)

    def _make(self, size: int) -> Spare:
        """Make a spare of at least `size` bytes, while a call waits for it."""
        spare = self._create(size, zeros=False)
        self._keep(spare)
        self._count_made()
        return spare

    def _keep(self, spare: Spare) -> None:
        insort(self._ready, spare, key=capacity_of)

    def _count_made(self) -> None:
        self.made += 1
        self.failed = None

    def _create(self, size: int, *, zeros: bool) -> Spare:
        """Make a spare as large as the next segment, or more if that is less than `size`."""
        capacity = min(self._most, max(self._capacity, 1 << (size - 1).bit_length()))
        # Drawing a number is one step, so two threads get different names.
        name = f"{next(self._numbers):06d}{SUFFIX}"
        while name in self._taken:
            name = f"{next(self._numbers):06d}{SUFFIX}"
        try:
            file = create_spare(self._directory, name, capacity, zeros=zeros)
        except OSError as error:
            if error.errno in NO_MORE_FILES:
                # The disk is not at fault, and nothing was planned: refuse the call, as on a full
                # disk.
                raise Unreadable(self._directory.path, error) from error
            if not is_full(error):
                raise
            raise StorageFull(
                f"{self._directory.path}: no room for the next segment ({capacity:,} bytes)."
                " The call was refused whole and nothing was lost; reading, and deciding what is"
                " undecided, still work. Free some room and call again."
            ) from error
        return Spare(name, file, capacity)

    def close(self) -> None:
        """Close the files, and leave them for the next engine."""
        with contextlib.ExitStack() as stack:
            for spare in (*self._ready, *self._given):
                stack.callback(spare.file.close)
        self._ready.clear()
        self._given.clear()


def create_spare(directory: Directory, name: str, capacity: int, *, zeros: bool) -> File:
    """Create a spare. The file gets its name once it is known to be sound.

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


capacity_of = attrgetter("capacity")


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
