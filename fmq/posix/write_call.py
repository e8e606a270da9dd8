"""The system call with which files are written."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence

from fmq.machine.disk import Buffer
from fmq.posix.full_sync import IN_THE_WRITE, write_and_sync

# The signature of os.pwritev: file, buffers, position, flags; returns how many bytes it wrote.
WriteCall = Callable[[int, Sequence[Buffer], int, int], int]


def writer(*, hold_gil: bool) -> WriteCall:
    """Return a writer. With `hold_gil` it keeps the interpreter's lock through a synced write, on
    Linux.
    """
    if not IN_THE_WRITE:
        return write_and_sync
    return _gil_holding_writer() if hold_gil else os.pwritev


def _gil_holding_writer() -> WriteCall:
    """Return a writer that keeps the interpreter's lock through a synced write.

    Beside a thread that computes, it takes up to the switch interval (5 ms) to get that lock back.
    Keeping it makes a send many times faster there. The price: all other Python threads stand still
    while the disk syncs.
    """
    import ctypes  # imported here, because it is slow and few programs need it

    libc = ctypes.PyDLL(None, use_errno=True)
    pwritev2 = libc.pwritev2
    pwritev2.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_long, ctypes.c_int)
    pwritev2.restype = ctypes.c_ssize_t

    class Iovec(ctypes.Structure):
        _fields_ = (("base", ctypes.c_char_p), ("size", ctypes.c_size_t))

    def write_holding_gil(fd: int, buffers: Sequence[Buffer], offset: int, flags: int) -> int:
        if not flags:
            return os.pwritev(fd, buffers, offset)
        data = b"".join(buffers)
        vector = Iovec(data, len(data))
        while True:
            written = pwritev2(fd, ctypes.byref(vector), 1, offset, flags)
            if written >= 0:
                return int(written)
            number = ctypes.get_errno()
            if number != errno.EINTR:
                raise OSError(number, os.strerror(number))

    return write_holding_gil
