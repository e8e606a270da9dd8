"""Locks on open files by flock: exclusive, or shared with other processes. No call waits.

It is flock, not fcntl: a POSIX lock is lost when any part of the process closes the file.
"""

from __future__ import annotations

import errno
import os
import stat

from fmq.basics.clock import SystemClock, sleep
from fmq.posix.descriptors import IS_POSIX

if IS_POSIX:
    import fcntl

# How often to try a lock that another program holds for a short look. No look takes as long as all
# these tries.
LOOKS_MAX = 100
LOOK_SECONDS = 0.005
# Errors with which remote file systems refuse a lock on a directory.
NO_LOCKS = (errno.EBADF, errno.EINVAL, errno.EISDIR, errno.ENOSYS, errno.EOPNOTSUPP, errno.EACCES)


def lock(fd: int) -> bool:
    """Take the exclusive lock of the file `fd`. Return False if another program has or shares the
    lock.
    """
    return _flock(fd, fcntl.LOCK_EX)


def share(fd: int) -> bool:
    """Take a shared lock of the file `fd`. Return False if another program has the exclusive
    lock.
    """
    return _flock(fd, fcntl.LOCK_SH)


def unlock(fd: int) -> None:
    """Release the lock of the open file `fd`."""
    _flock(fd, fcntl.LOCK_UN)


def _flock(fd: int, how: int) -> bool:
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        # If the file system cannot lock directories, the directory counts as locked.
        if error.errno not in NO_LOCKS or not stat.S_ISDIR(os.fstat(fd).st_mode):
            raise
    return True


def lock_past_looks(fd: int) -> bool:
    """Take the exclusive lock of the file `fd` for an engine. Return False if another engine has
    it.

    An engine never shares its lock. If the lock can be shared, another program is only looking
    whether there is an engine (`locked_by`): wait for it.
    """
    for _ in range(LOOKS_MAX):
        if lock(fd):
            return True
        if not share(fd):
            return False
        unlock(fd)
        sleep(SystemClock(), LOOK_SECONDS)
    return False


def has_locks(fd: int) -> bool:
    """Take the exclusive lock of the directory `fd`. Return False if its file system has no such
    locks.
    """
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def is_only_shared(fd: int) -> bool:
    """Take the exclusive lock of the file `fd`, or else the shared one. Return True if only the
    shared one was free: then other programs share the lock, and no engine has the file.
    """
    return not lock(fd) and share(fd)
