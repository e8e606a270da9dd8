"""A disk that fails when a test says so: EIO, a full disk, a short write.

    disk = FaultDisk(CrashDisk())
    disk.fail("write", nth=2, error=errno.ENOSPC, short=100)

wraps any Disk and counts what is asked of it, so that a test runs its workload once to count,
and then once more for each operation to make that one fail.

On a CrashDisk a failed sync does what Linux does: the bytes that could not be written stay
to be read and count as written, so that later syncs succeed and they are gone with the power.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence

from fmq.errors import Locked
from fmq.machine.disk import Buffer, Directory, Disk, File, Page, is_full
from fmq.testing.crash_files import CrashFile
from fmq.testing.faults import Fault, Faults, Interruption, Operation


class FaultDisk:
    """Passes all calls on to `disk`, except for those that a test makes fail. Any thread may call
    it.
    """

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self._faults = Faults()

    def fail(
        self,
        operation: Operation,
        *,
        nth: int = 0,
        error: int = errno.EIO,
        short: int | None = None,
        persistently: bool = False,
        names: str = "*",
        spoils: bool = False,
    ) -> None:
        """Let the `nth` operation of this kind from now on fail; with `persistently`, all later
        ones, too.

        They are counted from 0, among those on paths that match `names` ("*.seg"). A write
        for which there is no room, or which is not synced, leaves the first `short` bytes,
        pending; none if not told. A synced write that fails otherwise leaves `short` bytes,
        or all of them, to be seen and never to be durable. With `spoils` nothing written
        to the file later becomes durable either, as was seen of appended files on ext4.
        """
        self._faults.add(
            Fault(operation, nth, names, persistently, error=error, short=short, spoils=spoils)
        )

    def before(
        self, operation: Operation, act: Callable[[], object], *, nth: int = 0, names: str = "*"
    ) -> None:
        """Call `act` before the `nth` operation of this kind from now on, in the middle of the
        engine's call.

        They are counted as `fail` counts them. The thread that asks for the operation makes the
        call: it may wait there, use the disk itself, or raise what the operation is to raise.
        """
        self._faults.add(Interruption(operation, nth, names, act=act))

    def heal(self) -> None:
        """Let nothing fail any more, and call nothing. Lost bytes stay lost."""
        self._faults.clear()

    def count(self, operation: Operation, *, names: str = "*") -> int:
        """Return how many operations of this kind there were, failed ones included."""
        return self._faults.count(operation, names)

    def random(self, size: int) -> bytes:
        return self.disk.random(size)

    def directory(self, path: str, *, make: bool) -> FaultDirectory:
        if make:
            self._faults.meet("mkdir", path)
        return FaultDirectory(self._faults, self.disk.directory(path, make=make))


class FaultFile:
    """An open file of a FaultDisk."""

    def __init__(self, faults: Faults, file: File, path: str) -> None:
        self.path = path
        self._faults = faults
        self._file = file
        faults.watch(self)

    def read(self, offset: int, size: int) -> bytes:
        self._faults.meet("read", self.path)
        return self._file.read(offset, size)

    def write(self, offset: int, buffers: Sequence[Buffer], *, sync: bool) -> None:
        fault = self._faults.strike("write", self.path)
        if fault is None:
            self._file.write(offset, buffers, sync=sync)
            return
        error = fault.error_at(self.path)
        data = b"".join(buffers)
        if sync and not is_full(error):
            self._lose(fault, offset, data[: fault.short])
        elif fault.short:
            self._file.write(offset, (data[: fault.short],), sync=False)
        raise error

    def _lose(self, fault: Fault, offset: int, data: bytes) -> None:
        if isinstance(self._file, CrashFile):
            self._file.fail_write(offset, data, spoils=fault.spoils)
        elif data:
            self._file.write(offset, (data,), sync=False)

    def allocate(self, size: int) -> None:
        self._make_room(self._file.allocate, size)

    def write_zeros(self, size: int) -> None:
        self._make_room(self._file.write_zeros, size)

    def _make_room(self, make: Callable[[int], None], size: int) -> None:
        fault = self._faults.strike("allocate", self.path)
        if fault is None:
            make(size)
            return
        if fault.short:
            make(min(fault.short, size))
        raise fault.error_at(self.path)

    def sync(self) -> None:
        fault = self._faults.strike("sync", self.path)
        if fault is None:
            self._file.sync()
            return
        if isinstance(self._file, CrashFile):
            self._file.fail_sync(spoils=fault.spoils)
        raise fault.error_at(self.path)

    def size(self) -> int:
        return self._file.size()

    def identity(self) -> tuple[int, int]:
        return self._file.identity()

    def pin(self, *, exclusive: bool) -> bool:
        return self._file.pin(exclusive=exclusive)

    def close(self) -> None:
        self._file.close()
        self._faults.meet("close", self.path)


class FaultDirectory:
    """An open directory of a FaultDisk."""

    def __init__(self, faults: Faults, directory: Directory) -> None:
        self.path = directory.path
        self._faults = faults
        self._directory = directory

    def names(self) -> list[str]:
        return self._directory.names()

    def free_bytes(self) -> int:
        return self._directory.free_bytes()

    def open(self, name: str, *, write: bool = False) -> FaultFile:
        path = self._join(name)
        self._faults.meet("open", path)
        return FaultFile(self._faults, self._directory.open(name, write=write), path)

    def create(self, name: str) -> FaultFile:
        path = self._join(name)
        self._faults.meet("create", path)
        return FaultFile(self._faults, self._directory.create(name), path)

    def rename(self, old: str, new: str) -> None:
        self._faults.meet("rename", self._join(old))
        self._directory.rename(old, new)
        self._faults.renamed(self._join(old), self._join(new))

    def remove(self, name: str) -> None:
        self._faults.meet("remove", self._join(name))
        self._directory.remove(name)

    def sync(self) -> None:
        self._faults.meet("directory sync", self.path)
        self._directory.sync()

    def subdirectory(self, name: str, *, make: bool) -> FaultDirectory:
        if make:
            self._faults.meet("mkdir", self._join(name))
        return FaultDirectory(self._faults, self._directory.subdirectory(name, make=make))

    def lock(self, name: str) -> Callable[[], None]:
        release = self._directory.lock(name)

        def release_or_fail() -> None:
            release()
            self._faults.meet("unlock", self._join(name))

        return release_or_fail

    def locked_by(self, name: str) -> Locked | None:
        return self._directory.locked_by(name)

    def make_page(self, name: str, begin: Callable[[Page], None]) -> Page:
        self._faults.meet("create", self._join(name))
        return self._directory.make_page(name, begin)

    def page(self, name: str) -> Page:
        self._faults.meet("open", self._join(name))
        return self._directory.page(name)

    def close(self) -> None:
        self._directory.close()
        self._faults.meet("close", self.path)

    def _join(self, name: str) -> str:
        return f"{self.path}/{name}"
