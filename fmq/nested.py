"""Calls made in the middle of another call of the same thread: by a signal handler, or by what the
garbage collector ends.

What that other call has, the lock of the engine or the lead of a write, it lets go of when the
handler has returned, and not before: a call that waits for it there waits for ever. Python does
not say whose a lock is. So it is found out by looking at the stack, and then at each lock, by those
calls alone that are made so, and no other call pays for it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from threading import Lock

from fmq.store.group import becomes_free

HOME = __file__.rpartition("/")[0] + "/"
# What calls an engine as any program does.
PROGRAMS = tuple(HOME + each for each in ("cli/", "export/", "report/", "testing/"))
# For how long a lock may be another thread's; that is told from this one's by nothing but waiting.
PATIENCE_SECONDS = 2.0
# The same, where little is lost by taking it for this one's: if the garbage collector has come into
# a call that has the engine's lock, all others wait.
GIVE_BACK_PATIENCE_SECONDS = 0.01
# Where fmq calls a function of the program's, and holds nothing meanwhile.
CALL_OUTS = {(HOME + "feedback/local.py", "send_with"), (HOME + "feedback/loop.py", "_decision_on")}


def is_nested() -> bool:
    """Whether a call of fmq's is made in the middle of another one, by code that is not fmq's.

    That may be right still, as where a hook of a database is at work.
    """
    frame = sys._getframe(1).f_back
    left = False
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(HOME) or file.startswith(PROGRAMS):
            left = True
        elif left:
            if (file, frame.f_code.co_name) not in CALL_OUTS:
                return True
            left = False
        frame = frame.f_back
    return False


def is_inside(lock: Lock) -> bool:
    """Whether a call is made in the middle of one that has `lock`, as far as can be told in a
    moment: it would wait for that for ever.
    """
    return lock.locked() and is_nested() and not becomes_free(lock, GIVE_BACK_PATIENCE_SECONDS)


def are_free(locks: Iterable[Lock]) -> bool:
    """Whether this thread has none of `locks`: as it stands still, none will become its own."""
    return all(becomes_free(lock, PATIENCE_SECONDS) for lock in locks)
