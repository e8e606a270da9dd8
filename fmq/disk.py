"""The one door to files, as protocols: what the engine asks of a machine.

`Disk`, `Directory` and `File` have a few methods each; `fmq/posix.py` serves them with
system calls, `fmq.testing.CrashDisk` from memory, with power cuts. They promise what POSIX
promises and no more: bytes are durable after a synced write or `File.sync`, names after
`Directory.sync`, and nothing else orders anything.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from fmq.errors import Locked

Buffer = bytes | bytearray | memoryview


class File(Protocol):
    """Bytes under a name; all positions are explicit, there is no cursor."""

    def read(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes from `offset` on; fewer only at the end of the file."""

    def write(self, offset: int, buffers: Sequence[Buffer], *, sync: bool) -> None:
        """Write all buffers one after the other; with `sync` they are durable on return."""

    def allocate(self, size: int) -> None:
        """Reserve room for `size` bytes, which read as zeros; raises OSError ENOSPC."""

    def write_zeros(self, size: int) -> None:
        """Write `size` zeros from the start, so that later writes only overwrite blocks."""

    def sync(self) -> None:
        """Make everything written to this file durable, its length included."""

    def size(self) -> int: ...

    def identity(self) -> tuple[int, int]:
        """Tells this file from another that takes its name later."""

    def pin(self, *, exclusive: bool) -> bool:
        """Take a shared or exclusive lock on the file without waiting; False if refused."""

    def close(self) -> None: ...


class Directory(Protocol):
    """One directory; names are plain, without separators."""

    @property
    def path(self) -> str: ...

    def names(self) -> list[str]: ...

    def open(self, name: str, *, write: bool = False) -> File:
        """The existing file `name`; raises FileNotFoundError."""

    def create(self, name: str) -> File:
        """A new, empty file, open for writing; raises FileExistsError."""

    def rename(self, old: str, new: str) -> None:
        """Give `old` the name `new`, in place of a file that may have it."""

    def remove(self, name: str) -> None: ...

    def sync(self) -> None:
        """Make creations, renames and removals in this directory durable."""

    def subdirectory(self, name: str, *, make: bool) -> Directory: ...

    def lock(self, name: str) -> Callable[[], None]:
        """Hold this directory against other writers; raises Locked. Returns the release.

        It is held also if the file `name`, which says by whom, is removed. If a reader has a
        shared pin on that file, a new one takes its place.
        """

    def locked_by(self, name: str) -> Locked | None:
        """The error for whoever would hold this directory now; None if nobody does."""

    def close(self) -> None: ...


class Disk(Protocol):
    """A machine's files."""

    def directory(self, path: str, *, make: bool) -> Directory:
        """The directory at `path`, made (0700) if asked; raises NotAStore if it is not there.

        With `make` its name is durable on return, whoever made it.
        """

    def random(self, size: int) -> bytes:
        """Bytes that nobody else draws, for ids."""


def is_full(error: OSError) -> bool:
    """Whether `error` says that there is no room, as opposed to a failing disk."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def free(directory: Directory, *names: str) -> None:
    """Remove files and have their room at once: some file systems let go of it only with the
    directory's sync.
    """
    for name in names:
        directory.remove(name)
    directory.sync()
