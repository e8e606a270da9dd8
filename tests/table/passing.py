"""A disk that passes everything on to another, and tells the test what it is asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fmq.machine.disk import Directory, Disk, File


class PassingDisk:
    """Counts the bytes that are read, and calls `before_pin` before a file is pinned."""

    def __init__(self, disk: Disk, before_pin: Callable[[], None] = lambda: None) -> None:
        self._disk = disk
        self.bytes_read = 0
        self.before_pin = before_pin

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)

    def directory(self, path: str, *, make: bool) -> Any:
        return _Directory(self, self._disk.directory(path, make=make))

    def random(self, size: int) -> bytes:
        return self._disk.random(size)


class _Directory:
    def __init__(self, disk: PassingDisk, directory: Directory) -> None:
        self._disk = disk
        self._directory = directory

    def __getattr__(self, name: str) -> Any:
        return getattr(self._directory, name)

    def open(self, name: str, *, write: bool = False) -> Any:
        return _File(self._disk, self._directory.open(name, write=write))


class _File:
    def __init__(self, disk: PassingDisk, file: File) -> None:
        self._disk = disk
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def read(self, offset: int, size: int) -> bytes:
        data = self._file.read(offset, size)
        self._disk.bytes_read += len(data)
        return data

    def pin(self, *, exclusive: bool) -> bool:
        self._disk.before_pin()
        return self._file.pin(exclusive=exclusive)
