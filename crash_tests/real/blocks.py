"""A disk with a volatile cache: any part of what was written since the last flush may be lost.

Two files hold it: one as it was at the last flush, one as it is read now. At a chosen operation the
power fails, and from then on everything is refused. This module knows nothing of who writes.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random

from crash_tests.real.filesystem import run

SECTOR = 512
Write = tuple[int, bytes]  # offset, data


class Blocks:
    """The disk. Its operations are counted, and the one with the number `fail_at` fails."""

    def __init__(self, durable: Path, current: Path) -> None:
        self._durable = os.open(durable, os.O_RDWR)
        self._current = os.open(current, os.O_RDWR)
        self.size = os.fstat(self._current).st_size
        self.pending: list[Write] = []
        self.operations = 0
        self.fail_at = -1

    @property
    def failed(self) -> bool:
        return 0 <= self.fail_at <= self.operations

    def read(self, offset: int, size: int) -> bytes:
        self._check()
        return os.pread(self._current, size, offset)

    def write(self, offset: int, data: bytes) -> None:
        self._step()
        self.pending.append((offset, data))
        os.pwrite(self._current, data, offset)

    def flush(self) -> None:
        """Make all written data durable."""
        self._step()
        for offset, data in self.pending:
            os.pwrite(self._durable, data, offset)
        self.pending.clear()

    def _step(self) -> None:
        self._check()
        self.operations += 1
        self._check()

    def _check(self) -> None:
        if self.failed:
            raise OSError(errno.EIO, "the power has failed")


def losses(pending: list[Write], random: Random, count: int) -> Iterator[tuple[str, list[Write]]]:
    """Yield what may be left of `pending`: nothing, everything, and `count` other ways, with words
    for each.
    """
    yield "nothing of", []
    yield "all of", pending
    for _ in range(count if pending else 0):
        match random.choice(("prefix", "subset", "one lost", "torn")):
            case "prefix":
                kept = pending[: random.randrange(len(pending) + 1)]
                yield f"the first {len(kept)} of", kept
            case "subset":
                kept = [each for each in pending if random.random() < 0.5]
                yield f"{len(kept)} of", kept
            case "one lost":
                lost = random.randrange(len(pending))
                yield f"all but number {lost} of", [*pending[:lost], *pending[lost + 1 :]]
            case _:
                torn = random.randrange(len(pending))
                kept = [*pending[:torn], *some_sectors(pending[torn], random)]
                yield f"{torn} and some sectors of the next of", kept


def some_sectors(write: Write, random: Random) -> Iterator[Write]:
    offset, data = write
    for at in range(0, len(data), SECTOR):
        if random.random() < 0.5:
            yield offset + at, data[at : at + SECTOR]


def left_by(durable: Path, kept: Iterable[Write], image: Path) -> None:
    """Make `image` the disk that has the durable bytes, and these writes."""
    run("cp", "--sparse=always", str(durable), str(image))
    fd = os.open(image, os.O_RDWR)
    try:
        for offset, data in kept:
            os.pwrite(fd, data, offset)
    finally:
        os.close(fd)
