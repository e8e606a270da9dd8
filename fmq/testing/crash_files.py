"""The File and Directory of a disk in memory.

They turn each call into a change of a node, after asking the power supply whether it happens.
What a crash leaves of the changes is not known here; see `nodes` and `losses`.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from contextlib import suppress

from fmq.errors import Locked
from fmq.machine.disk import PAGE_BYTES, Buffer, Page
from fmq.testing.changes import Room, Write, Zeros
from fmq.testing.image import Image
from fmq.testing.nodes import Folder, Inode, NameChange
from fmq.testing.power import Power, PowerLoss

# LOCK gets this number: making it counts as no operation. Any other file gets the number of the
# operation that made it.
LOCK_NUMBER = -1


class CrashFile:
    """An open file of a CrashDisk."""

    def __init__(
        self, power: Power, inode: Inode, *, write: bool, handles: dict[int, Inode] | None = None
    ) -> None:
        """`handles` has all open files of the directory. This file adds itself until it closes."""
        self._power = power
        self._inode: Inode | None = inode
        self._write = write
        self._handles = {} if handles is None else handles
        self._handles[id(self)] = inode

    def read(self, offset: int, size: int) -> bytes:
        with self._power:
            return self._opened().seen.read(offset, size)

    def write(self, offset: int, buffers: Sequence[Buffer], *, sync: bool) -> None:
        data = b"".join(buffers)
        with self._power as power:
            inode = self._writable()
            durable = sync and power.honest
            change = Write(power.number, offset, data, inode.seen.size, durable)
            if sync and data and power.may_end:
                # The power may fail after the write and before its sync.
                power.interrupt(inode, Write(power.number, offset, data, inode.seen.size))
            power.spend(f"write {inode.path} {offset}+{len(data)}{' sync' if sync else ''}")
            if data:
                inode.change(change)

    def allocate(self, size: int) -> None:
        with self._power as power:
            self._change(Room(power.number, size), "allocate")

    def write_zeros(self, size: int) -> None:
        with self._power as power:
            self._change(Zeros(power.number, size), "write_zeros")

    def _change(self, change: Room | Zeros, operation: str) -> None:
        inode = self._writable()
        self._power.spend(f"{operation} {inode.path} {change.size}")
        inode.change(change)

    def sync(self) -> None:
        with self._power as power:
            inode = self._opened()
            power.spend(f"sync {inode.path}")
            if power.honest:
                inode.sync()

    def size(self) -> int:
        with self._power:
            return self._opened().seen.size

    def identity(self) -> tuple[int, int]:
        with self._power:
            return 0, self._opened().number

    def pin(self, *, exclusive: bool) -> bool:
        with self._power:
            return self._opened().pin(self, exclusive=exclusive)

    def close(self) -> None:
        """Release the pin. This is no operation of the disk, so it works after a power failure,
        too.

        Without the lock: the garbage collector may call this while this thread holds it.
        """
        inode, self._inode = self._inode, None
        self._handles.pop(id(self), None)
        if inode is not None and inode.pins:
            inode.pins.pop(self, None)

    def fail_write(self, offset: int, data: bytes, *, spoils: bool) -> None:
        """Write like a synced write that fails: the data is visible from now on, and never becomes
        durable.
        """
        with self._power as power:
            inode = self._writable()
            power.spend(f"failing write {inode.path} {offset}+{len(data)}")
            if data:
                inode.show(Write(power.number, offset, data, inode.seen.size))
            inode.spoiled |= spoils

    def fail_sync(self, *, spoils: bool) -> None:
        """Sync like a sync that fails: pending changes stay visible, and never become durable."""
        with self._power as power:
            inode = self._opened()
            power.spend(f"failing sync {inode.path}")
            inode.lose_pending()
            inode.spoiled |= spoils

    def _opened(self) -> Inode:
        if self._inode is None:
            raise OSError(errno.EBADF, "the file is closed")
        return self._inode

    def _writable(self) -> Inode:
        inode = self._opened()
        if not self._write:
            raise OSError(errno.EBADF, "the file is open for reading", inode.path)
        return inode


class CrashPage:
    """An open page of a CrashDisk."""

    def __init__(
        self, power: Power, inode: Inode, handles: dict[int, Inode], folder: Folder | None = None
    ) -> None:
        """The maker of the page passes the `folder` in which the page has its name."""
        assert inode.page is not None
        self.boot = power.boot.to_bytes(16, "little")
        words = memoryview(inode.page).cast("Q")
        self.words = words.toreadonly() if folder is None else words
        self._power = power
        self._inode = inode
        self._folder = folder
        self._handles = handles
        self._handles[id(self)] = inode
        if folder is not None:
            inode.pin(self, exclusive=True)

    def identity(self) -> tuple[int, int]:
        with self._power:
            return 0, self._inode.number & (1 << 64) - 1

    def is_held(self) -> bool:
        with self._power:
            return bool(self._inode.pins)

    def close(self, *, keep: bool = False) -> None:
        """Release the page. This is no operation of the disk, so it works after a power failure,
        too. The name stays then.
        """
        self._handles.pop(id(self), None)
        folder, self._folder = self._folder, None
        if folder is not None and keep:
            if self._inode.pins is not None:
                self._inode.pins.pop(self, None)
        elif folder is not None:
            with suppress(PowerLoss), self._power:
                for names in (folder.seen, folder.durable):
                    for name in [name for name, node in names.items() if node is self._inode]:
                        del names[name]
            if self._inode.pins is not None:
                self._inode.pins.pop(self, None)


FREE_BYTES = 1 << 40


class CrashDirectory:
    """An open directory of a CrashDisk."""

    def __init__(self, power: Power, folder: Folder, path: str) -> None:
        self.path = path
        self._power = power
        self._folder: Folder | None = folder
        self._handles: dict[int, Inode] = {}

    def deleted(self) -> list[str]:
        """Return the paths of files that were opened here, deleted, and not closed. If the
        directory is closed, return those of all files that are still open.
        """
        with self._power.lock:  # the power may be off, so do not enter `self._power`
            named = set(self._folder.seen.values()) if self._folder is not None else set()
            return sorted(each.path for each in self._handles.values() if each not in named)

    def names(self) -> list[str]:
        with self._power:
            return list(self._opened().seen)

    def free_bytes(self) -> int:
        return FREE_BYTES  # a CrashDisk is never full by itself

    def open(self, name: str, *, write: bool = False) -> CrashFile:
        with self._power as power:
            inode = self._file(name)
            power.opened.add(inode.path)
            return CrashFile(power, inode, write=write, handles=self._handles)

    def create(self, name: str) -> CrashFile:
        with self._power as power:
            folder = self._opened()
            if name in folder.seen:
                raise FileExistsError(errno.EEXIST, "already there", self._join(name))
            inode = Inode(power.number, Image(), Image())
            inode.path = self._join(name)
            power.spend(f"create {inode.path}")
            folder.change(NameChange(inode.number, inode, name))
            return CrashFile(power, inode, write=True, handles=self._handles)

    def rename(self, old: str, new: str) -> None:
        with self._power as power:
            inode = self._file(old)
            if new in self._opened().seen:
                self._file(new)
            number = power.number
            power.spend(f"rename {self._join(old)} {new}")
            inode.path = self._join(new)
            if old != new:
                self._opened().change(NameChange(number, inode, new))

    def remove(self, name: str) -> None:
        with self._power as power:
            inode = self._file(name)
            number = power.number
            power.spend(f"remove {self._join(name)}")
            self._opened().change(NameChange(number, inode, None))

    def sync(self) -> None:
        with self._power as power:
            folder = self._opened()
            power.spend(f"directory sync {self.path}")
            if power.honest:
                folder.sync()

    def subdirectory(self, name: str, *, make: bool) -> CrashDirectory:
        with self._power as power:
            folder = self._opened()
            if make and name not in folder.seen:
                number = power.number
                power.spend(f"mkdir {self._join(name)}")
                folder.change(NameChange(number, Folder({}), name))
            node = folder.seen.get(name)
            if node is None:
                raise FileNotFoundError(errno.ENOENT, "not there", self._join(name))
            if isinstance(node, Inode):
                raise NotADirectoryError(errno.ENOTDIR, "not a directory", self._join(name))
            return CrashDirectory(power, node, self._join(name))

    def lock(self, name: str) -> Callable[[], None]:
        with self._power as power:
            folder = self._opened()
            if folder.holder is not None:
                raise self._locked()
            if name not in folder.seen:
                # The lock's name is durable at once and not counted: no engine relies on it, and
                # each pending name doubles the states that a crash may leave.
                inode = Inode(LOCK_NUMBER, Image(), Image())
                folder.seen[name] = folder.durable[name] = inode
                power.was_used = True
            inode = self._file(name)
            if inode.pins and not any(inode.pins.values()):
                # `fmq.check` shares the lock, so a new file replaces it, as on the real disk.
                inode = Inode(inode.number - 1, Image(), Image())
                folder.seen[name] = folder.durable[name] = inode
            holder = CrashFile(power, inode, write=True)
            if not inode.pin(holder, exclusive=True):
                raise self._locked()
            folder.holder = holder

        def release() -> None:
            holder.close()
            if folder.holder is holder:
                folder.holder = None

        return release

    def locked_by(self, name: str) -> Locked | None:
        with self._power:
            return None if self._opened().holder is None else self._locked()

    def make_page(self, name: str, begin: Callable[[Page], None]) -> CrashPage:
        with self._power as power:
            folder = self._opened()
            # As for the lock: the name is durable at once, and making the file counts as no
            # operation.
            inode = Inode(LOCK_NUMBER, Image(), Image())
            inode.page = bytearray(PAGE_BYTES)
            inode.path = self._join(name)
            page = CrashPage(power, inode, self._handles, folder)
            begin(page)
            folder.seen[name] = folder.durable[name] = inode
            power.was_used = True
            return page

    def page(self, name: str) -> CrashPage:
        with self._power as power:
            inode = self._file(name)
            if inode.page is None:
                raise OSError(errno.EINVAL, "not a page", self._join(name))
            return CrashPage(power, inode, self._handles)

    def _locked(self) -> Locked:
        return Locked(self.path, f"process {os.getpid()}", here=True)

    def close(self) -> None:
        self._folder = None

    def _opened(self) -> Folder:
        if self._folder is None:
            raise OSError(errno.EBADF, "the directory is closed", self.path)
        return self._folder

    def _file(self, name: str) -> Inode:
        folder = self._folder or self._opened()
        node = folder.own(name)
        if isinstance(node, Inode):
            node.path = f"{self.path}/{name}"
            return node
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "not there", self._join(name))
        raise IsADirectoryError(errno.EISDIR, "a directory", self._join(name))

    def _join(self, name: str) -> str:
        assert "/" not in name, name
        return f"{self.path}/{name}"
