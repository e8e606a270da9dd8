"""A page of a file that the processes of one machine map, and share."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
from collections.abc import Callable

from fmq.disk import PAGE_BYTES
from fmq.posix.descriptors import close
from fmq.posix.locks import share, unlock

BOOT = "/proc/sys/kernel/random/boot_id"


class RealPage:
    """A file of this machine that is mapped."""

    def __init__(self, fd: int, *, remove: Callable[[], None] | None = None) -> None:
        """Take over `fd`. The maker passes `remove`, which removes the name."""
        self.boot = _boot()
        access = mmap.ACCESS_READ if remove is None else mmap.ACCESS_WRITE
        try:
            self._mapped = mmap.mmap(fd, PAGE_BYTES, access=access)
        except ValueError as error:  # the file is shorter
            raise OSError(errno.EINVAL, str(error)) from None
        self.words = memoryview(self._mapped).cast("Q")
        self._fd = fd
        self._remove = remove
        self._maker = os.getpid()

    def identity(self) -> tuple[int, int]:
        status = os.fstat(self._fd)
        return status.st_dev, status.st_ino

    def is_held(self) -> bool:
        if not share(self._fd):
            return True
        unlock(self._fd)
        return False

    def close(self, *, keep: bool = False) -> None:
        fd, self._fd = self._fd, -1
        if fd < 0:
            return
        # The child of a fork has a copy: closing that changes nothing for its parent.
        if self._remove is not None and os.getpid() == self._maker:
            if not keep:
                with contextlib.suppress(OSError):
                    self._remove()
            with contextlib.suppress(OSError):
                unlock(fd)
        self.words.release()
        self._mapped.close()
        close(fd)


def _boot() -> bytes:
    """Return the id of this start of the kernel, as 16 bytes; raise OSError if it has none."""
    fd = os.open(BOOT, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return bytes.fromhex(os.read(fd, 36).decode("ascii").replace("-", ""))
    finally:
        close(fd)
