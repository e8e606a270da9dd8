"""How an engine ends: drained and closed, or left behind in the child of a fork."""

from __future__ import annotations

import weakref
from contextlib import suppress
from typing import Protocol

from fmq.errors import Closed, FmqError
from fmq.parts import Parts
from fmq.real_disk import after_fork_in_child


class Forkable(Protocol):
    """An engine, as a fork sees it."""

    def _forked(self) -> None:
        """This is the child, and the engine is the parent's."""


def drain(parts: Parts, refusal: Closed) -> bool:
    """Let all that was planned become durable, and refuse the rest; False if it failed."""
    group, journal = parts.group, parts.journal
    while True:
        with parts.lock:
            if group.broken():
                return False
            # With sync="never" an idle engine may have written what it has not synced.
            if group.idle() and journal.durable_to == journal.position:
                group.close(refusal)
                return True
        with suppress(FmqError):
            group.flush(force=True)


def let_go_of_lock(parts: Parts) -> None:
    """In the child of a fork: a thread that had it does not exist, and would never release it."""
    with suppress(RuntimeError):
        parts.lock.release()


_open: weakref.WeakSet[Forkable] = weakref.WeakSet()


def remember(engine: Forkable) -> None:
    """From now on a fork leaves it dead in the child."""
    _open.add(engine)


def forget(engine: Forkable) -> None:
    """It is closed."""
    _open.discard(engine)


def _after_fork() -> None:
    for engine in list(_open):
        engine._forked()


after_fork_in_child(_after_fork)
