"""Forcing bytes to the disk: what each system calls it.

Linux does it in the write itself, with RWF_DSYNC. On macOS fsync leaves bytes in the cache of the
drive, and F_FULLFSYNC does not. The door to macOS is untested on the real thing: tests take away
what Python lacks there (tests/test_systems.py).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress

from fmq.machine.disk import Buffer

with suppress(ImportError):  # Windows has none
    import fcntl

IN_THE_WRITE = hasattr(os, "RWF_DSYNC")
BY_FCNTL = hasattr(os, "pwritev") and hasattr(globals().get("fcntl"), "F_FULLFSYNC")
CAN_SYNC = IN_THE_WRITE or BY_FCNTL
SYNC = getattr(os, "RWF_DSYNC", 1)  # the flags of a write that is durable on return


def full_sync(fd: int) -> None:
    """Return when all that was written to the file or directory `fd` is durable."""
    if BY_FCNTL:
        fcntl.fcntl(fd, getattr(fcntl, "F_FULLFSYNC"))  # noqa: B009 - mypy reads it as on Linux
    else:
        os.fsync(fd)


def write_and_sync(fd: int, buffers: Sequence[Buffer], offset: int, flags: int) -> int:
    """Write as os.pwritev does, and with SYNC in `flags` make durable what was written."""
    written = os.pwritev(fd, buffers, offset)
    if flags:
        full_sync(fd)
    return written
