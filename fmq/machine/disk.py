"""The one door to files, as protocols: what the engine needs of a machine.

`Disk`, `Directory` and `File` have a few methods each. `fmq/posix` implements them with system
calls, `fmq.testing.CrashDisk` in memory, with power cuts. They promise what POSIX promises and no
more: bytes are durable after a synced write or `File.sync`, names after `Directory.sync`, and
nothing else orders anything.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping, Sequence
from threading import RLock
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from fmq.errors import Locked

Buffer = bytes | bytearray | memoryview
PAGE_BYTES = 4096


class File(Protocol):
    """Bytes under a name. All positions are explicit; there is no cursor."""

    def read(self, offset: int, size: int) -> bytes:
        """Return up to `size` bytes from `offset` on, fewer only at the end of the file."""

    def write(self, offset: int, buffers: Sequence[Buffer], *, sync: bool) -> None:
        """Write all buffers one after another. With `sync` they are durable on return."""

    def allocate(self, size: int) -> None:
        """Reserve room for `size` bytes, which read as zeros. Raises OSError with ENOSPC if there
        is no room.
        """

    def write_zeros(self, size: int) -> None:
        """Write `size` zeros from the start, so that later writes only overwrite blocks."""

    def sync(self) -> None:
        """Make everything written to this file durable, its length included."""

    def size(self) -> int: ...

    def identity(self) -> tuple[int, int]:
        """Return a value that tells this file from a later file of the same name."""

    def pin(self, *, exclusive: bool) -> bool:
        """Take a shared or exclusive lock on the file, without waiting. Return False if another
        process has it.
        """

    def close(self) -> None: ...


class FarFile(File, Protocol):
    """A file whose writes take so long that several should be on their way."""

    def begin(self, offset: int, buffers: Sequence[Buffer]) -> Callable[[], None]:
        """Fix the place of a synced write behind all that were begun before.

        The function that is returned carries it out, once, in any thread. When it returns, all of
        them are durable. It raises what `write` raises, and then nothing that was begun later
        counts.
        """


def begin_of(file: File) -> Callable[[int, Sequence[Buffer]], Callable[[], None]] | None:
    """Return `begin` of a FarFile; None for any other file."""
    found: Callable[[int, Sequence[Buffer]], Callable[[], None]] | None
    found = getattr(file, "begin", None)
    return found


class Page(Protocol):
    """PAGE_BYTES of memory under a name, shared by the processes of one machine.

    It is never synced. A kill leaves what it holds, and a power cut any bytes or none.
    """

    @property
    def words(self) -> memoryview:
        """The memory as numbers of 8 bytes. Other processes that have the page open see a change at
        once.
        """

    @property
    def boot(self) -> bytes:
        """16 bytes that name this start of the machine."""

    def identity(self) -> tuple[int, int]:
        """Return a value that tells this page from a copy of its file."""

    def is_held(self) -> bool:
        """Return whether the process that made the page has it open."""

    def close(self, *, keep: bool = False) -> None:
        """Unmap the page. The process that made it also removes its file, unless it is to `keep`
        it.
        """


class Directory(Protocol):
    """One directory. Names are plain, without separators."""

    @property
    def path(self) -> str: ...

    def names(self) -> list[str]: ...

    def free_bytes(self) -> int:
        """Return how much more the file system would store for this user."""

    def open(self, name: str, *, write: bool = False) -> File:
        """Return the existing file `name`; raise FileNotFoundError."""

    def create(self, name: str) -> File:
        """Return a new, empty file, open for writing; raise FileExistsError."""

    def rename(self, old: str, new: str) -> None:
        """Rename `old` to `new`; replace a file that has that name."""

    def remove(self, name: str) -> None: ...

    def sync(self) -> None:
        """Make creations, renames and removals in this directory durable."""

    def subdirectory(self, name: str, *, make: bool) -> Directory: ...

    def lock(self, name: str) -> Callable[[], None]:
        """Lock this directory against other writers. Return the function that unlocks it. Raises
        Locked.

        The lock holds even if the file `name`, which says who has it, is removed. If a reader has a
        shared pin on that file, a new file takes its place.
        """

    def locked_by(self, name: str) -> Locked | None:
        """Return the error that a writer would get now; None if no engine has the lock."""

    def make_page(self, name: str, begin: Callable[[Page], None]) -> Page:
        """Return a new page, in place of any file `name`. The page is held until it is closed.

        `begin` is given it with zeros, and stores what it says first. Whoever opens `name` finds
        the file from before, or the page as `begin` has left it. Raises OSError, also where not all
        processes would see what is stored in it.
        """

    def page(self, name: str) -> Page:
        """Return the page `name`, to be read; raise OSError."""

    def close(self) -> None: ...


class Disk(Protocol):
    """The files of a machine."""

    def directory(self, path: str, *, make: bool) -> Directory:
        """Return the directory at `path`; make it (0700) if asked, or raise NotAStore if it is
        missing.

        With `make`, its name is durable on return, whichever process made it.
        """

    def random(self, size: int) -> bytes:
        """Return random bytes, for ids."""


class Home(Protocol):
    """What a directory that is the cache of a home (fmq/home) can do beside its files."""

    @property
    def writing(self) -> Mapping[int, RLock]:
        """For each thread that called this class, or freed segments, the lock that it held."""
        ...

    def beat(self, quiet: float) -> None:
        """Say in the home that this engine is alive, unless something of the last `quiet` seconds
        says so. Raises EngineFailed or OSError: then this engine writes nothing more.
        """

    def publish(self, address: str, *, tls: bool) -> None:
        """Say in the home that this engine serves at `address`, and whether over TLS. Raises as
        `beat` does.
        """

    def stats(self) -> Any:
        """Return what this engine knows of the home, as HomeStats."""
        ...

    def end(self) -> None:
        """Say to those who wait for it that this engine has ended. The engine is closed next."""


def home_of(directory: Directory) -> Home | None:
    """Return the home of `directory`; None if it has none."""
    found: Home | None = getattr(directory, "home", None)
    return found


def is_full(error: OSError) -> bool:
    """Return whether `error` says that the disk has no room. Other errors mean that it fails."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def free_of(directory: Directory) -> int | None:
    """Return how much more the file system would store; None if it does not say."""
    try:
        return directory.free_bytes()
    except OSError:  # also raised if the directory is closed
        return None


def free(directory: Directory, *names: str) -> None:
    """Remove files and get their room at once: some file systems release it only with a sync of the
    directory.
    """
    for name in names:
        directory.remove(name)
    directory.sync()


def replace(directory: Directory, name: str, temporary: str, data: Buffer) -> None:
    """Make `data` the content of the file `name`, durably. The data is first written to the file
    `temporary`. So a reader finds the old file or the new one as a whole, also after a crash.
    """
    if temporary in directory.names():
        directory.remove(temporary)
    file = directory.create(temporary)
    try:
        file.write(0, (data,), sync=True)
        file.sync()
    finally:
        file.close()
    directory.rename(temporary, name)
    directory.sync()
