"""The engine's lock, and the sections of code that change what it guards.

A change is made of several assignments, so an exception in the middle of one leaves memory half
changed: an interrupt (KeyboardInterrupt, or what a signal handler raises), MemoryError, a defect
of ours. None of them is undone. The engine fails instead, and recovery builds its memory anew
from the journal.

    with lock, section:
        ...  # check, refuse by a typed error, then change
"""

from __future__ import annotations

from collections.abc import Callable
from threading import RLock
from types import TracebackType

from fmq.errors import FmqError, Nested


def is_mine(lock: RLock) -> bool:
    """Return whether this thread holds `lock`: then the call comes from a signal handler.

    That is why the engine's lock is an RLock: it knows its owner. No call takes it twice.
    """
    return lock._is_owned()  # type: ignore[attr-defined,no-any-return]


class Section:
    """A context manager around a change of what the engine's lock guards.

    A refusal leaves the engine as it was: an FmqError or TypeError, raised before the first
    change. Any other exception goes to `fail`, under the lock, and on to the caller.
    """

    __slots__ = ("_fail",)

    def __init__(self, fail: Callable[[BaseException], None]) -> None:
        self._fail = fail

    def __enter__(self) -> None:
        """Do nothing: what follows has changed nothing yet."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None and not is_refusal(error):
            self._fail(error)


def is_refusal(error: BaseException) -> bool:
    """Return whether a plan that raised `error` had changed nothing.

    Nested is none: a signal handler that calls the engine in the middle of a change gets it, and
    may let it out.
    """
    return isinstance(error, (FmqError, TypeError)) and not isinstance(error, Nested)
