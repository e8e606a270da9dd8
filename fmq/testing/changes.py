"""Changes to a file's bytes, and what a power cut may leave of each.

A change knows how to happen to an image, whole or torn, and which tears are worth trying. It
does not know its file, so that disks made from one another share it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b
from random import Random
from typing import Protocol

from fmq.testing.image import Image

SECTOR_BYTES = 512  # pages of 4 KiB begin at some of these sectors
# At how many ends of sectors one write is cut. A larger write is cut at some of them, chosen by the
# seed.
BOUNDARIES_MAX = 16
GARBAGE = Random("garbage").randbytes(4096)


class Tear(StrEnum):
    """What is left of a write that a power cut tore."""

    SHORT = "short"  # the first part is there; then the file ends, or its old bytes follow
    ZEROS = "zeros"  # the first part, then zeros: the new size was stored, and the data was not
    GARBAGE = "garbage"  # the first part, then bytes that no program wrote
    TAIL = "tail"  # all but the first part, which has its old bytes
    HOLE = "hole"  # all but one sector, which has its old bytes


Cut = tuple[int, Tear]


class Change(Protocol):
    """A change that is not durable. Numbers tell the order of changes."""

    @property
    def number(self) -> int: ...

    def tears(self, random: Random) -> Iterator[Cut]:
        """Yield the ways in which the change may be left half done; none if it happens as a whole
        or not at all.
        """


class FileChange(Change, Protocol):
    """A change to one file's bytes."""

    @property
    def durable(self) -> bool:
        """Return whether the change must survive. Such a change is in the list only because an
        earlier change is pending.
        """

    def apply(self, image: Image) -> None: ...

    def tear(self, image: Image, cut: int, tear: Tear) -> None:
        """Apply to `image` what a power cut leaves of the change, which it tears after `cut` bytes
        in the way of `tear`.
        """

    def digest(self) -> bytes:
        """Return a digest that is equal for equal changes, at whatever time they happen."""


@dataclass(frozen=True, slots=True, eq=False)
class Write:
    """`data` written at `offset` into a file that was `size_before` long."""

    number: int
    offset: int
    data: bytes
    size_before: int
    durable: bool = False

    def apply(self, image: Image) -> None:
        image.write(self.offset, self.data)

    def digest(self) -> bytes:
        hashed = blake2b(self.data, digest_size=16)
        hashed.update(f"{self.offset} {self.size_before} {self.durable}".encode())
        return hashed.digest()

    def tear(self, image: Image, cut: int, tear: Tear) -> None:
        head, rest = self.data[:cut], len(self.data) - cut
        match tear:
            case Tear.SHORT:
                self._put(image, 0, head)
            case Tear.ZEROS:
                self._put(image, 0, head + bytes(rest))
            case Tear.GARBAGE:
                self._put(image, 0, head + (GARBAGE * (rest // len(GARBAGE) + 1))[:rest])
            case Tear.TAIL:
                self._put(image, cut, self.data[cut:])
            case Tear.HOLE:
                self._put(image, 0, head)
                self._put(image, cut + SECTOR_BYTES, self.data[cut + SECTOR_BYTES :])

    def _put(self, image: Image, start: int, data: bytes) -> None:
        if data:
            image.write(self.offset + start, data)

    def tears(self, random: Random) -> Iterator[Cut]:
        yield 0, Tear.ZEROS
        yield 0, Tear.GARBAGE
        boundaries = self._boundaries(random)
        for cut in sorted({*boundaries, *self._places(random)}):
            yield cut, Tear.SHORT
            yield cut, Tear.ZEROS
            yield cut, Tear.GARBAGE
            yield cut, Tear.TAIL
            if cut in boundaries:
                yield cut, Tear.HOLE

    def _boundaries(self, random: Random) -> set[int]:
        """Return the places inside of the data where a sector of the disk ends."""
        first = -self.offset % SECTOR_BYTES or SECTOR_BYTES
        boundaries = range(first, len(self.data), SECTOR_BYTES)
        if len(boundaries) > BOUNDARIES_MAX:
            return set(random.sample(boundaries, BOUNDARIES_MAX))
        return set(boundaries)

    def _places(self, random: Random) -> set[int]:
        """Return other places to cut at. One of them is the file's old end, because the new size
        may be lost.
        """
        size = len(self.data)
        places = {1, size // 2, size - 1, random.randrange(size), self.size_before - self.offset}
        return {cut for cut in places if 0 < cut < size}


@dataclass(frozen=True, slots=True, eq=False)
class Zeros:
    """`size` zeros written at the start of a file."""

    number: int
    size: int
    durable: bool = False

    def apply(self, image: Image) -> None:
        image.clear(self.size)

    def digest(self) -> bytes:
        return f"zeros {self.size} {self.durable}".encode()

    def tear(self, image: Image, cut: int, tear: Tear) -> None:
        image.clear(cut)

    def tears(self, random: Random) -> Iterator[Cut]:
        for cut in sorted({1, self.size // 2, self.size - 1}):
            if 0 < cut < self.size:
                yield cut, Tear.SHORT


@dataclass(frozen=True, slots=True, eq=False)
class Room:
    """A file extended to at least `size` bytes."""

    number: int
    size: int
    durable: bool = False

    def apply(self, image: Image) -> None:
        image.grow(self.size)

    def digest(self) -> bytes:
        return f"room {self.size} {self.durable}".encode()

    def tear(self, image: Image, cut: int, tear: Tear) -> None:
        raise AssertionError("room is there or it is not")

    def tears(self, random: Random) -> Iterator[Cut]:
        return iter(())
