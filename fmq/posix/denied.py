"""Whose it is: the refusal of the machine to let this process into a directory, in full."""

from __future__ import annotations

import os
import stat
from contextlib import suppress

from fmq.posix.descriptors import IS_POSIX


def denied(error: OSError, path: str) -> OSError:
    """Return the refusal `error` of what is at `path`, with its owner in the text."""
    if not IS_POSIX:  # there it has no mode
        return error
    text = f"{error.strerror or error}, as {_whose(os.path.abspath(path))}"
    return type(error)(error.errno, text, error.filename)


def _whose(path: str) -> str:
    """Return to whom `path` belongs, or the nearest directory above that this process can see."""
    found = None
    while found is None:
        try:
            found = os.stat(path)
        except OSError:
            if path == os.path.dirname(path):
                raise
            path = os.path.dirname(path)
    owner, mode = _name_of(found.st_uid), stat.S_IMODE(found.st_mode)
    return f"{path} belongs to {owner}, with mode {mode:o}, and this process to {_name_of()}"


def _name_of(user: int | None = None) -> str:
    """Return the name of a user, by default of the one that this process is of."""
    import pwd  # imported here, because Windows has no such module

    if user is None:
        user = os.geteuid()
    with suppress(KeyError):
        return pwd.getpwuid(user).pw_name
    return f"the user {user}"
