"""A home as a directory that is only read: its pieces, the entries above the floor, and the
checkpoint and the indexes of its owner, if they are there and sound.

Nothing is written, nobody is fenced, and no directory of this machine is needed. All of a home is
durable, so its end is never in doubt.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from functools import partial
from threading import Lock
from typing import NoReturn
from zlib import crc32

from fmq.arguments.path import ADDRESS, without_secrets
from fmq.basics.clock import SystemClock
from fmq.errors import ExtraMissing, HomeRefused, Locked, NotAStore
from fmq.home.files_taken import Wanted, checkpoint_in, files_of
from fmq.home.home_addresses import (
    RETRY_SECONDS,
    check_address,
    is_home,
    objects_at,
)
from fmq.home.home_history import HomePiece
from fmq.home.home_log import HomeLog
from fmq.home.home_owner import owner_text
from fmq.home.objects import NoAnswer, Objects
from fmq.machine.disk import Buffer, Page
from fmq.posix import RealDisk
from fmq.recovery.checkpoint import SLOTS, encode
from fmq.recovery.derived_files import is_of_one_checkpoint
from fmq.store.journal.durable_page import AGAIN, DURABLE_TO, NAME, PAGE, VERSION, no_page
from fmq.store.journal.segment import (
    HEADER_BYTES,
    Header,
    base_of,
    decode_header,
    is_segment,
    segment_name,
)


def disk_to_read(address: str) -> HomeReadDisk | None:
    """Return a disk with the home at `address`; None if it is a path, or none can be read there."""
    if not ADDRESS.match(address) or "?" in address or not is_home(address):
        return None
    with (
        suppress(ExtraMissing, NotAStore, HomeRefused, OSError, NoAnswer),
        closing(objects_at(address, make=False)) as objects,
    ):
        if objects.names("slots"):
            return HomeReadDisk(address)
    return None


def home_to_read(address: str) -> HomeReadDisk | None:
    """Return what `disk_to_read` returns. Raises HomeRefused if no home can be read there, and the
    address can be nothing else.
    """
    disk = disk_to_read(address)
    if disk is None and is_home(address):
        raise HomeRefused(
            f"{without_secrets(address)}: no home can be read at this address. Nothing was "
            "opened. Look whether it can be reached, and is yours to read."
        )
    return disk


class HomeReadDisk:
    """A disk with one directory, a home, as it was when the directory was opened."""

    def __init__(self, address: str) -> None:
        self._address = check_address(address)

    def directory(self, path: str, *, make: bool) -> HomeReadDirectory:
        return HomeReadDirectory(objects_at(self._address, make=False))

    def random(self, size: int) -> bytes:
        return RealDisk().random(size)


class HomeReadDirectory:
    """Implements Directory: the segments of a home."""

    def __init__(self, objects: Objects, path: str | None = None) -> None:
        """`path` is what it is called, if that is not the address of `objects`."""
        self._log = HomeLog(
            objects, RealDisk().random, SystemClock(), {}, retry_seconds=RETRY_SECONDS
        )
        self._tails: dict[int, list[tuple[int, bytes]]] = {}
        self._piece: tuple[str, bytes] = "", b""
        self._derived: tuple[str, bytes] = "", b""
        self._checkpoint = b""
        self._files: set[str] = set()
        try:
            self._log.follow(None)
            self.path = path or objects.address
            if not self._log.history.home:
                raise HomeRefused(f"{self.path}: no engine has opened this home yet.")
            for append in self._log.unwritten():
                self._tails.setdefault(append.base, []).append((append.offset, append.data))
            self._take_checkpoint()
        except BaseException:
            self._log.close()
            raise
        self._using = Lock()
        self._users = 1  # this directory and its files: a file may be read after its directory

    @property
    def position(self) -> int:
        """The end of the journal, when the home was read."""
        return self._log.history.position

    @property
    def owner(self) -> str:
        """Who had the home when it was read, for a person."""
        return owner_text(self._log.history.said)

    def again(self) -> HomeReadDirectory:
        """Return this directory for one more user, who closes it, too."""
        with self._using:
            self._users += 1
        return self

    def names(self) -> list[str]:
        derived = [SLOTS[1], *self._files] if self._checkpoint else []
        return [segment_name(base) for base in self._log.history.segments] + derived

    def _take_checkpoint(self) -> None:
        """Offer the checkpoint of the last floor, and what belongs to it, if it is sound."""
        history = self._log.history
        found = checkpoint_in(history, self._header_of, self._log.fetch)
        if found is None:
            return
        # As a first one it has one slot, and nobody asks for the other.
        self._checkpoint = encode(found._replace(generation=1, clean=False))
        pieces = history.files.pieces
        self._files |= {*filter(is_of_one_checkpoint, pieces), *history.indexes(pieces)}

    def _header_of(self, base: int) -> Header:
        return decode_header(self.bytes_of(base, 0, HEADER_BYTES), segment_name(base))

    def open(self, name: str, *, write: bool = False) -> HomeReadFile:
        if write:
            self._refuse()
        if not is_segment(name):
            data = self._derived_bytes(name)
            return HomeReadFile(self.again(), crc32(name.encode()), len(data), partial(_part, data))
        segment = self._log.history.segments.get(base_of(name))
        if segment is None:
            raise FileNotFoundError(errno.ENOENT, "not in the home", name)
        base = base_of(name)
        return HomeReadFile(self.again(), base, segment.capacity, partial(self.bytes_of, base))

    def _derived_bytes(self, name: str) -> bytes:
        if name == SLOTS[1] and self._checkpoint:
            return self._checkpoint
        if name not in self._files:
            raise FileNotFoundError(errno.ENOENT, "not in the home", name)
        known, data = self._derived
        if known != name:
            found = files_of(self._log.history.files, [name], self._log.fetch)
            if name not in found:
                raise FileNotFoundError(errno.ENOENT, "not in the home any more, or damaged", name)
            data = found[name]
            self._derived = name, data
        return data

    def bytes_of(self, base: int, offset: int, size: int) -> bytes:
        """Return bytes of a segment. What was never written is zeros, as in a file."""
        segment = self._log.history.segments[base]
        found = bytearray(max(0, min(size, segment.capacity - offset)))
        for piece in segment.pieces:
            if piece.start < offset + len(found) and offset < piece.end:
                _put(found, offset, piece.start, self._bytes_of_piece(base, piece))
        for start, data in self._tails.get(base, ()):
            if start < offset + len(found) and offset < start + len(data):
                _put(found, offset, start, data)
        return bytes(found)

    def _bytes_of_piece(self, base: int, piece: HomePiece) -> bytes:
        key = piece.key(base)
        known, data = self._piece  # other threads may read another one
        if known != key:
            (data,) = self._log.fetched([Wanted(key, piece.end - piece.start)])
            self._piece = key, data
        return data

    def close(self) -> None:
        with self._using:
            self._users -= 1
            is_last = not self._users
        if is_last:
            self._log.close()

    def locked_by(self, name: str) -> Locked | None:
        return None  # whoever owns the home, what was read stays as it is

    def page(self, name: str) -> Page:
        if name != PAGE:
            raise FileNotFoundError(errno.ENOENT, "no memory is shared here", self.path)
        return HomePage(self.position)

    def subdirectory(self, name: str, *, make: bool) -> NoReturn:
        raise FileNotFoundError(errno.ENOENT, "not in the home", name)

    def _refuse(self) -> NoReturn:
        raise PermissionError(errno.EROFS, "a home is only read here", self.path)

    def free_bytes(self) -> int:
        self._refuse()

    def create(self, name: str) -> HomeReadFile:
        self._refuse()

    def rename(self, old: str, new: str) -> None:
        self._refuse()

    def remove(self, name: str) -> None:
        self._refuse()

    def sync(self) -> None:
        self._refuse()

    def lock(self, name: str) -> Callable[[], None]:
        self._refuse()

    def make_page(self, name: str, begin: Callable[[Page], None]) -> Page:
        self._refuse()


class HomePage:
    """Implements Page: it says that all of the home is durable."""

    boot = bytes(16)

    def __init__(self, durable_to: int) -> None:
        self.words = no_page()
        self.words[0], self.words[1] = NAME, VERSION
        self.words[DURABLE_TO] = self.words[AGAIN] = durable_to

    def identity(self) -> tuple[int, int]:
        return 0, 0

    def is_held(self) -> bool:
        return True

    def close(self, *, keep: bool = False) -> None:
        pass


class HomeReadFile:
    """Implements File: a segment of a home, or a derived file."""

    def __init__(
        self,
        directory: HomeReadDirectory,
        number: int,
        size: int,
        read: Callable[[int, int], bytes],
    ) -> None:
        """`number` tells it from the others."""
        self._directory, self._number, self._size = directory, number, size
        self.read = read

    def size(self) -> int:
        return self._size

    def identity(self) -> tuple[int, int]:
        return crc32(self._directory.path.encode()), self._number

    def pin(self, *, exclusive: bool) -> bool:
        return True

    def close(self) -> None:
        self._directory.close()

    def _refuse(self) -> NoReturn:
        raise PermissionError(errno.EROFS, "a home is only read here", self._directory.path)

    def write(self, offset: int, buffers: Sequence[Buffer], *, sync: bool) -> None:
        self._refuse()

    def allocate(self, size: int) -> None:
        self._refuse()

    def write_zeros(self, size: int) -> None:
        self._refuse()

    def sync(self) -> None:
        self._refuse()


def _put(found: bytearray, offset: int, start: int, data: bytes) -> None:
    """Copy to `found`, which begins at `offset`, what `data` has of it, which begins at `start`."""
    first, end = max(offset, start), min(offset + len(found), start + len(data))
    found[first - offset : end - offset] = data[first - start : end - start]


def _part(data: bytes, offset: int, size: int) -> bytes:
    return data[offset : offset + size]
