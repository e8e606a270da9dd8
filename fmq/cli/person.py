"""Who runs the command, for the journal."""

from __future__ import annotations

import getpass


def person() -> str:
    """Return the name of the user; "fmq" if the machine knows none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "fmq"
