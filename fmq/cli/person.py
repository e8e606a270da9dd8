"""The name of the user who runs the command. The journal notes it as the author of a change."""

from __future__ import annotations

import getpass


def person() -> str:
    """Return the name of the user; "fmq" if the machine knows none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "fmq"
