"""Finds out whether this thread holds a lock. If it does, a signal handler makes the present call
inside of another one.
"""

from threading import RLock


def is_mine(lock: RLock) -> bool:
    """Return whether this thread holds `lock`. Then the call comes from a signal handler.

    The engine's lock is an RLock because that knows its owner. No call takes it twice.
    """
    return lock._is_owned()  # type: ignore[attr-defined,no-any-return]
