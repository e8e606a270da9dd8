"""A disk in memory, for `fmq.open(":memory:")`. Nothing on it is durable: it ends with its engine.

It keeps what a running process sees of a disk, and nothing of what a power cut leaves; the disk
that loses its power is `fmq.testing.CrashDisk`.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from itertools import count

from fmq.errors import Locked, NotAStore
from fmq.machine.disk import Buffer, Directory, Disk, Page

ROOM_BYTES = 1 << 40  # what such a disk says it has: the machine's memory is the limit
_numbers = count(1)


class Content:
    """The bytes of one file, whatever its name is. What was reserved and not written reads as
    zeros, and takes no memory.
    """

    __slots__ = ("data", "exclusive", "length", "number", "shared")

    def __init__(self) -> None:
        self.number = next(_numbers)
        self.data = bytearray()
        self.length = 0
        self.shared = 0
        self.exclusive = False


class MemoryFile:
    """An open file."""

    __slots__ = ("_content", "_is_open", "_pinned", "_writes")

    def __init__(self, content: Content, *, writes: bool) -> None:
        self._content = content
        self._writes = writes
        self._is_open = True
        self._pinned: bool | None = None

    def _opened(self, *, writes: bool = False) -> Content:
        if not self._is_open or (writes and not self._writes):
            raise OSError(errno.EBADF, "closed, or not open for this")
        return self._content

    def read(self, offset: int, size: int) -> bytes:
        content = self._opened()
        end = min(offset + size, content.length)
        found = bytes(content.data[offset:end])
        return found + bytes(max(0, end - offset - len(found)))

    def write(self, offset: int, buffers: Sequence[Buffer], *, sync: bool) -> None:
        content = self._opened(writes=True)
        data = b"".join(buffers)
        if not data:
            return
        end = offset + len(data)
        if offset > len(content.data):
            content.data.extend(bytes(offset - len(content.data)))
        content.data[offset:end] = data
        content.length = max(content.length, end)

    def allocate(self, size: int) -> None:
        content = self._opened(writes=True)
        content.length = max(content.length, size)

    def write_zeros(self, size: int) -> None:
        content = self._opened(writes=True)
        if size >= len(content.data):
            content.data.clear()
        else:
            content.data[:size] = bytes(size)
        content.length = max(content.length, size)

    def sync(self) -> None:
        self._opened()

    def size(self) -> int:
        return self._opened().length

    def identity(self) -> tuple[int, int]:
        return 0, self._opened().number

    def pin(self, *, exclusive: bool) -> bool:
        content = self._opened()
        self._unpin()
        if content.exclusive or (exclusive and content.shared):
            return False
        content.exclusive = exclusive
        content.shared += not exclusive
        self._pinned = exclusive
        return True

    def _unpin(self) -> None:
        if self._pinned is not None:
            self._content.exclusive = False
            self._content.shared -= not self._pinned
            self._pinned = None

    def close(self) -> None:
        self._unpin()
        self._is_open = False


class MemoryFolder:
    """What one directory holds."""

    def __init__(self) -> None:
        self.files: dict[str, Content] = {}
        self.folders: dict[str, MemoryFolder] = {}
        self.is_locked = False


class MemoryDirectory:
    """An open directory."""

    def __init__(self, path: str, folder: MemoryFolder) -> None:
        self.path = path
        self._folder = folder
        self._is_open = True

    def _opened(self) -> MemoryFolder:
        if not self._is_open:
            raise OSError(errno.EBADF, "closed, or not open for this", self.path)
        return self._folder

    def _found(self, name: str) -> Content:
        folder = self._opened()
        if name not in folder.files:
            raise FileNotFoundError(errno.ENOENT, "no such file or directory", name)
        return folder.files[name]

    def names(self) -> list[str]:
        folder = self._opened()
        return [*folder.files, *folder.folders]

    def free_bytes(self) -> int:
        self._opened()
        return ROOM_BYTES

    def open(self, name: str, *, write: bool = False) -> MemoryFile:
        if write and name in self._opened().folders:
            raise IsADirectoryError(errno.EISDIR, "a directory", name)
        return MemoryFile(self._found(name), writes=write)

    def create(self, name: str) -> MemoryFile:
        folder = self._opened()
        if name in folder.files or name in folder.folders:
            raise FileExistsError(errno.EEXIST, "file exists", name)
        folder.files[name] = made = Content()
        return MemoryFile(made, writes=True)

    def rename(self, old: str, new: str) -> None:
        found = self._found(old)
        files = self._folder.files
        if new in self._folder.folders:
            raise IsADirectoryError(errno.EISDIR, "a directory", new)
        del files[old]
        files[new] = found

    def remove(self, name: str) -> None:
        if name in self._opened().folders:
            raise IsADirectoryError(errno.EISDIR, "a directory", name)
        self._found(name)
        del self._folder.files[name]

    def sync(self) -> None:
        self._opened()

    def subdirectory(self, name: str, *, make: bool) -> MemoryDirectory:
        folders = self._opened().folders
        if make and name not in self._folder.files:
            folders.setdefault(name, MemoryFolder())
        if name in self._folder.files:
            raise NotADirectoryError(errno.ENOTDIR, "not a directory", name)
        if name not in folders:
            raise FileNotFoundError(errno.ENOENT, "no such file or directory", name)
        return MemoryDirectory(f"{self.path}/{name}", folders[name])

    def lock(self, name: str) -> Callable[[], None]:
        locked = self.locked_by(name)
        if locked is not None:
            raise locked
        folder = self._folder
        folder.is_locked = True
        held = [folder]

        def release() -> None:
            while held:
                held.pop().is_locked = False

        if name not in folder.files or folder.files[name].shared:  # as a reader wants it: a new one
            folder.files[name] = Content()
        return release

    def locked_by(self, name: str) -> Locked | None:
        folder = self._opened()
        if folder.is_locked or (name in folder.files and folder.files[name].exclusive):
            return Locked(self.path, f"process {os.getpid()}", here=True)
        return None

    def make_page(self, name: str, begin: Callable[[Page], None]) -> Page:
        raise OSError(errno.EOPNOTSUPP, "no pages in memory", name)

    def page(self, name: str) -> Page:
        raise OSError(errno.EOPNOTSUPP, "no pages in memory", name)

    def close(self) -> None:
        self._is_open = False


class MemoryDisk:
    """One directory in memory, under the name `path`. All others are those of `beside`, so that a
    backup of it goes to the real disk.
    """

    def __init__(self, path: str, beside: Disk) -> None:
        self._path = path
        self._beside = beside
        self._folder: MemoryFolder | None = None

    def directory(self, path: str, *, make: bool) -> Directory:
        if path != self._path:
            return self._beside.directory(path, make=make)
        if self._folder is None:
            if not make:
                raise NotAStore(
                    f"{path}: a journal in memory is new and empty, so there is nothing to read. "
                    "Nothing was opened."
                )
            self._folder = MemoryFolder()
        return MemoryDirectory(path, self._folder)

    def random(self, size: int) -> bytes:
        return self._beside.random(size)
