"""Copies the bytes of one segment, reads the copy once more to prove it, and lets new segments have
their names.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from typing import NamedTuple, Protocol

from fmq.machine.disk import Buffer, Directory, File
from fmq.store.bytes.kinds import Record
from fmq.store.journal.scan import Finding, Scan, end_of
from fmq.store.journal.segment import HEADER_BYTES, segment_name

BLOCK_BYTES = 1 << 20
NEW = ".new"
"""The suffix of a segment that has not got its name yet."""


class Segments(Protocol):
    """Where the files of segments lie: a directory, or pieces that are put together."""

    @property
    def path(self) -> str: ...

    def open(self, name: str) -> File:
        """Return the file of a segment."""
        ...


class Proof(NamedTuple):
    """What reading a segment has found."""

    chain: int
    """The checksum over its sound records."""
    end: int
    """The position after the last sound append."""
    damage: str
    """What is wrong behind it; "" if it is sound as far as was asked."""


class OnlyRead:
    """The methods of a File that write. A copy calls none of them on the file that it reads."""

    def write(self, offset: int, buffers: Sequence[Buffer], *, sync: bool) -> None:
        raise NotImplementedError("what is copied is not changed")

    def allocate(self, size: int) -> None:
        raise NotImplementedError

    def write_zeros(self, size: int) -> None:
        raise NotImplementedError

    def sync(self) -> None:
        raise NotImplementedError

    def identity(self) -> tuple[int, int]:
        raise NotImplementedError

    def pin(self, *, exclusive: bool) -> bool:
        raise NotImplementedError

    def close(self) -> None:
        """Hold nothing open."""


def copy(source: File, target: File, start: int, end: int, done: Callable[[int], None]) -> None:
    """Copy the bytes from `start` to `end`, offsets in both files. `done` is called with the size
    of each part.
    """
    while start < end:
        data = source.read(start, min(BLOCK_BYTES, end - start))
        if not data:
            raise OSError("a segment is shorter than its journal")
        target.write(start, (data,), sync=False)
        start += len(data)
        done(len(data))


def prove(
    directory: Segments,
    name: str,
    store: bytes,
    base: int,
    end: int,
    seen: Callable[[list[Record]], bool] = lambda append: True,
) -> Proof:
    """Read the segment at `base`, in the file `name`, up to the position `end`, with all checksums.

    `seen` is called with each append, and ends the reading if it returns False.
    """
    start = base + HEADER_BYTES
    with closing(directory.open(name)) as file:
        scan = Scan(file, base, end, start, zlib.crc32(store), 0, start)
        chain, upto = 0, start
        for append in scan:
            if not seen(append):
                return Proof(chain, upto, "")
            chain, upto = scan.chain or 0, end_of(append)
    ending = scan.ending
    assert ending is not None
    sound = ending.finding is Finding.END and ending.append_start == end
    return Proof(chain, upto, "" if sound else ending.reason or ending.finding.value)


def name_segments(directory: Directory, bases: Sequence[int]) -> None:
    """Let the new segments at `bases` have their names, the first one when the names of all others
    are durable. Without a first segment no engine opens the directory.
    """
    first, *others = bases
    for batch in (others, [first]):
        for base in batch:
            directory.rename(segment_name(base, NEW), segment_name(base))
        directory.sync()


def clear(target: Directory) -> None:
    """Remove what an interrupted run has made in a new directory. The first segment goes first,
    because no engine takes the rest for a journal without it.
    """
    with suppress(OSError):
        for name in sorted(target.names()):
            target.remove(name)
        target.sync()
