"""The errors of reading a journal as a table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fmq.errors import Damaged, NewerFormat, StorageError
from fmq.posix import host_name


class Overtaken(StorageError):
    """Retention dropped a part of the journal before it was read."""

    def __init__(
        self, path: str, what: str, way_on: str = "Read again from what is there now"
    ) -> None:
        super().__init__(
            f"{path}: {what} was dropped by the engine's retention before it was read. Nothing "
            f"else is missing. {way_on}, keep more (retain_bytes, retain_seconds), or hold it "
            "with `with fmq.table.pinned(path):` while reading."
        )
        self.path = path


class Outrun(Overtaken):
    """Retention dropped what a reader that goes on from a position would have read next."""

    def __init__(self, path: str, start: int, end: int) -> None:
        super().__init__(
            path,
            f"the journal from position {start} up to {end}, {end - start:,} bytes,",
            "Start again behind the gap: a stream with the option onGap=skip, which counts it, "
            f"`fmq deliver` with --on-gap skip, `fmq.table.read` with since={end}",
        )
        self.start = start
        self.end = end


class PositionBeyond(StorageError):
    """A reader would go on from a position that its journal does not reach."""

    def __init__(self, path: str, store: str, position: int, end: int) -> None:
        super().__init__(
            f"{path}: position {position}, where reading goes on, is beyond the end of the journal "
            f"there, {end}. Nothing was read. The directory is an older copy of the one that was "
            "read before, as after a restore, or its engine was killed and is not open again."
        )
        self.path = path
        self.store = store
        self.position = position
        self.end = end


class OtherStore(StorageError):
    """A reader of a planned split found another store at the path, or none."""

    def __init__(self, path: str, planned: str, found: str | None) -> None:
        """`planned` and `found` are UUIDs of stores, as hex. None: there is no journal to read."""
        host = host_name()
        there = "there is no journal to read" if found is None else f"there is the store {found}"
        super().__init__(
            f"{path}: on host {host} {there}, and the query was planned for the store {planned}. "
            "Nothing of it was read. Have every machine of the cluster show the same directories "
            "under the same paths; if the directory was replaced meanwhile, run the query again."
        )
        self.path = path
        self.host = host
        self.planned = planned
        self.found = found


class Unsound(Damaged):
    """Durable bytes of a journal are missing or wrong, so some rows cannot be read."""

    def __init__(self, path: str, damage: Damaged) -> None:
        self.file = f"{path}/{damage.file}"
        self.position = damage.position
        self.reason = damage.reason
        StorageError.__init__(
            self,
            f"{self.file}, position {self.position}: {self.reason}. Nothing was changed. "
            "`fmq verify DIR` lists everything that is wrong; restore the file from a copy, or "
            "read what is sound in mode=permissive (fmq.table.read: permissive=True): the view "
            "`damage` lists what that leaves out.",
        )


class Diverged(StorageError):
    """Two directories began as copies of one store, and then engines wrote to both."""

    def __init__(self, one: str, other: str, file: str, reason: str) -> None:
        super().__init__(
            f"{one} and {other} are copies of one store, and both were written after they parted: "
            f"in {file} {reason}. Nothing was read. Name only the one that counts; the other, "
            "read by itself, shows what is in it alone. Before an engine writes to a copy, "
            "export what it needs and begin a new directory instead."
        )
        self.paths = one, other


@contextmanager
def located(path: str) -> Iterator[None]:
    """Add the path of the directory to a Damaged or NewerFormat of the block."""
    try:
        yield
    except Unsound:
        raise
    except Damaged as damage:
        raise Unsound(path, damage) from None
    except NewerFormat as newer:
        if newer.file.startswith(path):
            raise
        raise NewerFormat(f"{path}/{newer.file}", newer.position, newer.what) from None
