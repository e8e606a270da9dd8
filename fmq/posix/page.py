"""A file of one page that processes of one machine share by mapping it."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
from collections.abc import Callable

from fmq.machine.disk import PAGE_BYTES
from fmq.posix.descriptors import close
from fmq.posix.locks import share, unlock

BOOT = "/proc/sys/kernel/random/boot_id"


class RealPage:
    """A mapped file of this machine."""

    def __init__(self, fd: int, *, remove: Callable[[], None] | None = None) -> None:
        """Take over `fd`. The process that made the page passes `remove`, which removes its
        file.
        """
        self.boot = _boot()
        access = mmap.ACCESS_READ if remove is None else mmap.ACCESS_WRITE
        try:
            self._mapped = mmap.mmap(fd, PAGE_BYTES, access=access)
        except ValueError as error:  # the file is shorter than a page
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
        # A forked child only has a copy: closing the copy must not remove the parent's file.
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
    """Return the kernel's boot id as 16 bytes. Raises OSError if there is none."""
    fd = os.open(BOOT, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return bytes.fromhex(os.read(fd, 36).decode("ascii").replace("-", ""))
    finally:
        close(fd)
