"""A machine on which other code acts at a chosen moment while a directory is being opened."""

from __future__ import annotations

import os
from collections.abc import Callable

from fmq.posix import RealDirectory, RealDisk


class Interrupted(RealDirectory):
    """Has `meanwhile` run once, between listing the names and whatever comes next."""

    meanwhile: Callable[[], None] | None = None

    def names(self) -> list[str]:
        names = super().names()
        if self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            meanwhile()
        return names


class InterruptedDisk(RealDisk):
    """Runs `meanwhile` when the names have been listed so many times."""

    def __init__(self, after_looks: int, meanwhile: Callable[[], None]) -> None:
        super().__init__()
        self._left = after_looks
        self._meanwhile = meanwhile

    def directory(self, path: str, *, make: bool) -> RealDirectory:
        plain = super().directory(path, make=make)
        directory = Interrupted(path, plain._fd, os.pwritev, plain._mounted)
        directory.meanwhile = self._count
        self._directory = directory
        return directory

    def _count(self) -> None:
        self._left -= 1
        if self._left:
            self._directory.meanwhile = self._count
        else:
            self._meanwhile()
