"""A directory of an object store, read only. It implements Directory and File.

Each read is a request, which costs as much as half a megabyte. So whoever reads on and on is given
ever larger pieces.
"""

from __future__ import annotations

import errno
import os
import zlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NoReturn

from pyarrow import fs

from fmq.buckets.bucket_address import described
from fmq.errors import Locked
from fmq.machine.disk import Buffer, Page

AHEAD_BYTES_MIN = 16 << 10
AHEAD_BYTES_MAX = 8 << 20
NEAR_BYTES = 512 << 10


class BucketFile:
    """An object, from which is read at offsets."""

    def __init__(self, path: str, stream: Any) -> None:
        self._path = path
        self._stream = stream
        self._size: int = stream.size()
        self._start, self._data = 0, b""
        self._ahead = AHEAD_BYTES_MIN

    def read(self, offset: int, size: int) -> bytes:
        size = min(size, max(0, self._size - offset))
        at = offset - self._start
        if not 0 <= at <= at + size <= len(self._data):
            near = self._data and 0 <= at <= len(self._data) + NEAR_BYTES
            self._ahead = 2 * max(size, self._ahead) if near else AHEAD_BYTES_MIN
            wanted = min(max(size, min(self._ahead, AHEAD_BYTES_MAX)), self._size - offset)
            self._start, self._data = offset, bytes(self._stream.read_at(wanted, offset))
            at = 0
        return self._data[at : at + size]

    def size(self) -> int:
        return self._size

    def identity(self) -> tuple[int, int]:
        return zlib.crc32(self._path.encode()), self._size

    def pin(self, *, exclusive: bool) -> bool:
        return True  # no engine drops what lies here

    def close(self) -> None:
        self._stream.close()

    def write(self, offset: int, buffers: Sequence[Buffer], *, sync: bool) -> None:
        _refuse(self._path)

    def allocate(self, size: int) -> None:
        _refuse(self._path)

    def write_zeros(self, size: int) -> None:
        _refuse(self._path)

    def sync(self) -> None:
        _refuse(self._path)


class BucketDirectory:
    """What lies below an address, down to the next slash."""

    def __init__(self, address: str) -> None:
        self.path = described(address)
        self._files, self._root = _store_of(self.path, os.getpid())

    def names(self) -> list[str]:
        return [*self._listed()]

    def folders(self) -> list[str]:
        """Return the names that are directories themselves."""
        return [name for name, is_folder in self._listed().items() if is_folder]

    def _listed(self) -> dict[str, bool]:
        """Return the names, and which of them are directories."""
        # In Google's store pyarrow lists no directory, so they are told by what lies below them.
        deep = self._files.type_name == "gcs"
        wanted = fs.FileSelector(self._root, allow_not_found=True, recursive=deep)
        found: dict[str, bool] = {}
        for each in self._files.get_file_info(wanted):
            name, below, _ = each.path.removeprefix(f"{self._root}/").partition("/")
            found[name] = bool(below) or each.type is fs.FileType.Directory
        return found

    def open(self, name: str, *, write: bool = False) -> BucketFile:
        if write:
            _refuse(self.path)
        path = f"{self._root}/{name}"
        return BucketFile(path, self._files.open_input_file(path))

    def subdirectory(self, name: str, *, make: bool) -> BucketDirectory:
        if make:
            _refuse(self.path)
        front, mark, query = self.path.partition("?")
        return BucketDirectory(f"{front}/{name}{mark}{query}")

    def locked_by(self, name: str) -> Locked | None:
        return None

    def page(self, name: str) -> Page:
        raise FileNotFoundError(errno.ENOENT, "no memory is shared here", self.path)

    def close(self) -> None:
        pass

    def free_bytes(self) -> int:
        _refuse(self.path)

    def create(self, name: str) -> BucketFile:
        _refuse(self.path)

    def rename(self, old: str, new: str) -> None:
        _refuse(self.path)

    def remove(self, name: str) -> None:
        _refuse(self.path)

    def sync(self) -> None:
        _refuse(self.path)

    def lock(self, name: str) -> Callable[[], None]:
        _refuse(self.path)

    def make_page(self, name: str, begin: Callable[[Page], None]) -> Page:
        _refuse(self.path)


@lru_cache(16)
def _store_of(address: str, pid: int) -> tuple[Any, str]:
    """Return the file system of `address` and the path in it. A fork needs one of its own."""
    files, root = fs.FileSystem.from_uri(address)
    return files, root.rstrip("/")


def _refuse(path: str) -> NoReturn:
    raise OSError(errno.EROFS, "an object store is only read here", path)
