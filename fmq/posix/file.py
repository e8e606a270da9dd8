"""One open file of this machine."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Sequence

from fmq.machine.disk import Buffer
from fmq.posix.descriptors import close
from fmq.posix.full_sync import SYNC, full_sync
from fmq.posix.locks import lock, share
from fmq.posix.write_call import WriteCall

OPEN_FILES = "/proc/self/fd"
IOV_MAX = 1024  # the number of buffers that one pwritev takes on Linux
# The page cache keeps the zeros in folios of this size. A later synced write walks through all
# blocks of the folios that it touches: see benchmarks/zeros.py.
ZEROS_BYTES = 128 << 10
UNCHECKED_BYTES_MAX = 4 << 20


class RealFile:
    """A file of this machine."""

    __slots__ = ("_fd", "_path", "_writer")

    def __init__(self, fd: int, path: str, writer: WriteCall) -> None:
        self._fd = fd
        self._path = path
        self._writer = writer

    def read(self, offset: int, size: int) -> bytes:
        if size > UNCHECKED_BYTES_MAX:
            # The kernel accepts any size, but Python allocates all of it before reading.
            size = max(0, min(size, self.size() - offset))
        try:
            data = os.pread(self._fd, size, offset)
            if len(data) == size or not data:
                return data
            parts = [data]
            while data and (size := size - len(data)):
                offset += len(data)
                data = os.pread(self._fd, size, offset)
                parts.append(data)
        except OSError as error:
            self._name(error)
            raise
        return b"".join(parts)

    def write(self, offset: int, buffers: Sequence[Buffer], *, sync: bool) -> None:
        if len(buffers) == 1:
            size = len(buffers[0])
        else:
            size = sum(map(len, buffers))
            if len(buffers) > IOV_MAX:
                buffers = (b"".join(buffers),)
        # One system call that writes and, with sync, makes durable what it wrote.
        flags = SYNC if sync else 0
        write = self._writer
        try:
            written = write(self._fd, buffers, offset, flags)
            if written != size:
                self._write_rest(offset, b"".join(buffers), written, flags)
        except OSError as error:
            self._name(error)
            raise

    def _write_rest(self, offset: int, data: bytes, written: int, flags: int) -> None:
        """Write the rest after a short write. Raises OSError if the disk is full or fails."""
        while written < len(data):
            more = self._writer(self._fd, (memoryview(data)[written:],), offset + written, flags)
            if not more:
                raise OSError(errno.EIO, "a write made no progress")
            written += more

    def allocate(self, size: int) -> None:
        try:
            os.posix_fallocate(self._fd, 0, size)
        except AttributeError:  # macOS has none
            self._write_zeros(self.size(), size)

    def write_zeros(self, size: int) -> None:
        self._write_zeros(0, size)

    def _write_zeros(self, start: int, size: int) -> None:
        zeros = bytes(max(0, min(size - start, ZEROS_BYTES)))
        for offset in range(start, size, ZEROS_BYTES):
            self.write(offset, (memoryview(zeros)[: size - offset],), sync=False)

    def sync(self) -> None:
        try:
            full_sync(self._fd)
        except OSError as error:
            self._name(error)
            raise

    def _name(self, error: OSError) -> None:
        """Add the present name of the file to `error`. The system call knows only a number, and a
        file changes its name when a spare becomes a segment.
        """
        error.filename = self._path
        with contextlib.suppress(OSError):
            error.filename = os.readlink(f"{OPEN_FILES}/{self._fd}")

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def identity(self) -> tuple[int, int]:
        status = os.fstat(self._fd)
        return status.st_dev, status.st_ino

    def pin(self, *, exclusive: bool) -> bool:
        return lock(self._fd) if exclusive else share(self._fd)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            close(fd)
