"""A shared lock on the file of a segment, which keeps retention from dropping it.

Retention takes an exclusive one before it drops a segment, drops the oldest first, and stops at
the first that it may not. So one lock on the first segment keeps the whole journal, and it ends
with the process that holds it, however that ends.
"""

from __future__ import annotations

from contextlib import ExitStack, closing

from fmq.machine.disk import Directory


def pin(directory: Directory, name: str, stack: ExitStack) -> bool:
    """Lock the segment `name` until `stack` ends. Return False if it is being dropped."""
    try:
        file = directory.open(name)
    except FileNotFoundError:
        return False
    with ExitStack() as unless_locked:
        unless_locked.callback(file.close)
        # Retention may have dropped the segment after it was opened and before it was locked.
        if not file.pin(exclusive=False) or not _still(directory, name, file.identity()):
            return False
        stack.push(unless_locked.pop_all())
    return True


def _still(directory: Directory, name: str, identity: tuple[int, int]) -> bool:
    try:
        with closing(directory.open(name)) as file:
            return file.identity() == identity
    except FileNotFoundError:
        return False
