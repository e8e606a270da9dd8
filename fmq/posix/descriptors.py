"""File descriptors: the flags to open them with, the mode of a new file, closing."""

from __future__ import annotations

import contextlib
import os
import stat

try:
    import fcntl  # noqa: F401

    IS_POSIX = True
except ImportError:  # on Windows `import fmq` works, and RealDisk refuses
    IS_POSIX = False

FILE_MODE = 0o600  # the mode of new files, unless Options name another
# O_NONBLOCK has no effect on a file. It avoids waiting for a named pipe.
UNFOLLOWED = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK if IS_POSIX else 0


def close(fd: int) -> None:
    """Close `fd`, and ignore an error: the kernel has released the number and its lock, and what
    must be durable was synced before.
    """
    with contextlib.suppress(OSError):
        os.close(fd)


def directory_mode(file_mode: int) -> int:
    """Return the mode of a directory whose files have `file_mode`: users who may read the files may
    enter it.
    """
    return file_mode | (file_mode & 0o444) >> 2


def set_mode(fd: int, mode: int) -> None:
    """Set the mode of the open file `fd`, if this user owns it. The umask may have narrowed the
    mode.
    """
    if stat.S_IMODE(os.fstat(fd).st_mode) != mode:
        with contextlib.suppress(PermissionError):  # another user has made the file
            os.fchmod(fd, mode)


def set_mode_or_close(fd: int, mode: int) -> None:
    """Set the mode of what was just made and opened as `fd`. Close `fd` if that fails, as nobody
    else knows it yet.
    """
    try:
        set_mode(fd, mode)
    except BaseException:
        close(fd)
        raise
