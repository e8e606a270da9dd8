"""A disk whose directory is the cache of a home: the engine's appends go there first.

    the engine calls                    and this happens
    lock                                local lock; take over; the cache becomes equal to the home
    write to a segment                  an entry, durable in the home; then the local file, unsynced
    rename to the name of a segment     an entry with its header, unless the home has it
    remove of a segment                 a DROP; then the local file
    write of a checkpoint               the local file; then the floor is raised, if that is due
    all else                            the local directory

The engine knows nothing of it: it sees a Disk. What it shows is durable in the home, because it
shows nothing before its write returns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from errno import EINVAL
from functools import partial

from fmq.errors import EraseRefused, HomeRefused, Locked
from fmq.home.home_cache import HomeCache, check_is_cache
from fmq.home.home_log import HomeLog
from fmq.home.home_owner import HomeOwner
from fmq.home.home_sweeper import HomeSweeper
from fmq.machine.disk import Buffer, Directory, Disk, File, Page
from fmq.recovery.checkpoint import SLOTS
from fmq.recovery.erasure_file import ERASING, ERASING_NEW
from fmq.recovery.layout import HOME, HOME_NEW
from fmq.store.journal.segment import base_of, is_segment


class HomeDisk:
    """A disk for one engine. The first directory that it asks for is the cache of the home. All
    later ones are ordinary ones: those that a backup reads and writes.
    """

    def __init__(self, inner: Disk, log: HomeLog, at: int | None = None) -> None:
        """With `at` the home is taken over by filling this slot alone, or opening raises
        TakenOver.
        """
        self._inner = inner
        self._log: HomeLog | None = log
        self._at = at

    def directory(self, path: str, *, make: bool) -> Directory:
        log, self._log = self._log, None
        if log is None:
            return self._inner.directory(path, make=make)
        try:
            return HomeDirectory(self._inner.directory(path, make=make), log, self._at)
        except BaseException:
            log.close()
            raise

    def random(self, size: int) -> bytes:
        return self._inner.random(size)


class HomeDirectory:
    """A directory of this machine, in front of a home."""

    def __init__(self, inner: Directory, log: HomeLog, at: int | None) -> None:
        self._inner = inner
        self._log = log
        self._at = at
        self._cache: HomeCache | None = None
        self._owner: HomeOwner | None = None
        self._sweeper: HomeSweeper | None = None
        # The files that are open for writing. A file that is renamed while it is open is the spare
        # that becomes a segment.
        self._open: dict[str, HomeFile] = {}

    @property
    def path(self) -> str:
        return self._inner.path

    @property
    def home(self) -> HomeOwner:
        """What owns the home; see `home_of`."""
        assert self._owner is not None, "an engine locks its directory first"
        return self._owner

    def names(self) -> list[str]:
        """Return the names, none before the home is taken over: the cache may be in any state."""
        if self._cache is None:
            return []
        return [name for name in self._inner.names() if name not in (HOME, HOME_NEW)]

    def lock(self, name: str) -> Callable[[], None]:
        check_is_cache(self._inner, self._log.address)
        unlock = self._inner.lock(name)
        cache: HomeCache | None = None
        try:
            cache = HomeCache(self._inner, self._log.address)
            self._owner = owner = self._log.take_over(cache, self._at)
        except BaseException as error:
            if cache is not None:
                cache.close()
            unlock()
            if isinstance(error, OSError) and error.filename == self._log.address:
                raise HomeRefused(
                    f"{self._log.address}: cannot be used ({error.strerror}). Nothing was lost. "
                    "Look whether it can be reached, and is yours to read and write."
                ) from error
            raise
        self._cache = cache
        self._sweeper = HomeSweeper(owner, self._log.floor_slots, self._log.floor_bytes)

        def leave() -> None:
            self._log.close()
            unlock()

        return leave

    def locked_by(self, name: str) -> Locked | None:
        return self._inner.locked_by(name)

    def open(self, name: str, *, write: bool = False) -> File:
        file = self._inner.open(name, write=write)
        return self._writable(name, file) if write else file

    def create(self, name: str) -> File:
        if name in (ERASING, ERASING_NEW):
            raise EraseRefused(
                self.path,
                f"{self._log.address} is its home, and a home cannot erase yet",
                "let retention drop the segment, or keep what must be erased out of this store",
            )
        return self._writable(name, self._inner.create(name))

    def _writable(self, name: str, file: File) -> File:
        self._open[name] = made = HomeFile(self, name, file)
        return made

    def forget(self, name: str, file: HomeFile) -> None:
        """Forget a file that is closed."""
        if self._open.get(name) is file:
            del self._open[name]

    def rename(self, old: str, new: str) -> None:
        cache = self._cache
        assert cache is not None, "an engine locks its directory first"
        if is_segment(new):
            base = base_of(new)
            known = self.home.end_of(base)
            if known is None:
                self.home.append(base, 0, cache.header_of(old))
            elif cache.differs(old, base, known):
                raise changes_the_home(new)
        file = self._open.pop(old, None)
        if file is not None:
            file.name, self._open[new] = new, file
        self._inner.rename(old, new)

    def remove(self, name: str) -> None:
        if is_segment(name) and self.home.end_of(base_of(name)) is not None:
            self.home.drop(base_of(name))
        self._inner.remove(name)

    def begin_write(
        self, base: int, offset: int, data: bytes, then: Callable[[], None]
    ) -> Callable[[], None]:
        """Begin to append to the home what it does not have of `data`, as `HomeOwner.begin` says.

        The start of it may be there: attempts are written ahead, and again with the next append.
        """
        cache = self._cache
        assert cache is not None, "an engine locks its directory first"
        end = self.home.end_of(base)
        if end is None or offset > end or (offset < end and offset + len(data) < end):
            raise changes_the_home(f"the segment at {base}")
        if offset < end and cache.read(base, offset, end) != data[: end - offset]:
            raise changes_the_home(f"the segment at {base}")
        if offset + len(data) == end:
            return then
        return self.home.begin(base, end, data[end - offset :], then)

    def wrote(self, name: str) -> None:
        """A file that is no segment was written."""
        if name in SLOTS and self._cache is not None and self._sweeper is not None:
            self._sweeper.raise_floor(self._cache)

    def free_bytes(self) -> int:
        return self._inner.free_bytes()

    def sync(self) -> None:
        self._inner.sync()

    def subdirectory(self, name: str, *, make: bool) -> Directory:
        return self._inner.subdirectory(name, make=make)

    def make_page(self, name: str, begin: Callable[[Page], None]) -> Page:
        return self._inner.make_page(name, begin)

    def page(self, name: str) -> Page:
        return self._inner.page(name)

    def close(self) -> None:
        self._log.close()
        self._inner.close()


class HomeFile:
    """A file of the cache that is open for writing."""

    __slots__ = ("_directory", "_inner", "name")

    def __init__(self, directory: HomeDirectory, name: str, inner: File) -> None:
        self._directory = directory
        self._inner = inner
        self.name = name

    def write(self, offset: int, buffers: Sequence[Buffer], *, sync: bool) -> None:
        """Write to the home first, if the file is a segment."""
        if is_segment(self.name):
            self.begin(offset, buffers)()
        else:
            self._inner.write(offset, buffers, sync=sync)
            self._directory.wrote(self.name)

    def begin(self, offset: int, buffers: Sequence[Buffer]) -> Callable[[], None]:
        """Begin a write of a segment, as FarFile says. When the home has the bytes, they are
        written to the local file, which needs no sync: it is made equal to the home before it is
        used again.
        """
        data = b"".join(buffers)
        then = partial(self._inner.write, offset, (data,), sync=False)
        return self._directory.begin_write(base_of(self.name), offset, data, then)

    def read(self, offset: int, size: int) -> bytes:
        return self._inner.read(offset, size)

    def allocate(self, size: int) -> None:
        self._inner.allocate(size)

    def write_zeros(self, size: int) -> None:
        self._inner.write_zeros(size)

    def sync(self) -> None:
        self._inner.sync()

    def size(self) -> int:
        return self._inner.size()

    def identity(self) -> tuple[int, int]:
        return self._inner.identity()

    def pin(self, *, exclusive: bool) -> bool:
        return self._inner.pin(exclusive=exclusive)

    def close(self) -> None:
        self._directory.forget(self.name, self)
        self._inner.close()


def changes_the_home(what: str) -> OSError:
    """Return the error for a write that would change bytes which the home has already."""
    return OSError(EINVAL, "a home only grows, and this would change what it has", what)
