"""A disk that counts what is read of each file."""

from __future__ import annotations

from collections import Counter
from typing import Any

from fmq.machine.disk import Directory
from fmq.posix import RealDisk
from fmq.store.journal.segment import HEADER_BYTES


class CountingDisk:
    """This machine's files; `read` has the bytes that were read of each, by name."""

    def __init__(self) -> None:
        self.read: Counter[str] = Counter()

    def directory(self, path: str, *, make: bool) -> Directory:
        counting: Any = _Directory(RealDisk().directory(path, make=make), self.read)
        return counting  # type: ignore[no-any-return]

    def random(self, size: int) -> bytes:
        return RealDisk.random(size)

    def bytes_of(self, suffix: str) -> int:
        return sum(size for name, size in self.read.items() if name.endswith(suffix))

    def segments(self) -> list[int]:
        """The first positions of those of which more was read than headers and one head."""
        return sorted(int(name[:20]) for name, size in self.read.items() if _beyond(name, size))


def _beyond(name: str, size: int) -> bool:
    return name.endswith(".seg") and size > 6 * HEADER_BYTES


class _Directory:
    def __init__(self, directory: Directory, read: Counter[str]) -> None:
        self._directory = directory
        self._read = read

    def __getattr__(self, name: str) -> Any:
        return getattr(self._directory, name)

    def open(self, name: str, *, write: bool = False) -> Any:
        return _File(self._directory.open(name, write=write), name, self._read)


class _File:
    def __init__(self, file: Any, name: str, read: Counter[str]) -> None:
        self._file = file
        self._name = name
        self._read = read

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def read(self, offset: int, size: int) -> bytes:
        data: bytes = self._file.read(offset, size)
        self._read[self._name] += len(data)
        return data
