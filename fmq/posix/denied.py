"""Whose it is: the refusal of the machine to let this process into a directory, in full."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress

from fmq.posix.descriptors import IS_POSIX


def denied(error: OSError, path: str) -> OSError:
    """Return the refusal `error` of what is at `path`, with its owner in the text: of the path
    itself, or of the nearest directory above that this process can see.
    """
    path = os.path.realpath(path)  # what refuses may lie behind a symlink
    while True:
        try:
            return _denied(error, path, os.stat(path))
        except OSError:
            if path == os.path.dirname(path):
                raise
            path = os.path.dirname(path)


def denied_in(error: OSError, path: str, fd: int) -> OSError:
    """Return the refusal `error` of a file in the directory that is open as `fd`, and was named
    `path` when it was opened.
    """
    try:
        name = error.filename or os.curdir
        found = os.stat(name, dir_fd=fd, follow_symlinks=False)
        path = os.path.normpath(os.path.join(path, name))
    except OSError:  # there is none, or the directory itself refuses
        found = os.fstat(fd)
    return _denied(error, path, found)


def _denied(error: OSError, path: str, found: os.stat_result) -> OSError:
    text = error.strerror or str(error)
    # EPERM has other reasons, such as a file that the system keeps from being changed. And where
    # the system is not POSIX, there is no mode.
    if error.errno == errno.EACCES and IS_POSIX:
        owner, mode = _name_of(found.st_uid), stat.S_IMODE(found.st_mode)
        text += f", as {path} belongs to {owner}, with mode {mode:o}, and this process to "
        text += _name_of()
    return type(error)(error.errno, text, error.filename)


def _name_of(user: int | None = None) -> str:
    """Return the name of a user, by default of the one that this process is of."""
    import pwd  # imported here, because Windows has no such module

    if user is None:
        user = os.geteuid()
    with suppress(KeyError):
        return pwd.getpwuid(user).pw_name
    return f"the user {user}"
