"""The engine's lock, and the sections of code that change what it guards.

A change is made of several assignments. An exception in the middle of it leaves memory half
changed: an interrupt (KeyboardInterrupt, or what a signal handler raises), MemoryError, or a defect
of fmq. Nothing is undone then. The engine fails, and the next opening builds its memory from the
journal.

    with lock, section:
        ...  # check, refuse by a typed error, then change
"""

from __future__ import annotations

import _thread
from collections.abc import Callable
from types import TracebackType
from typing import Any

from fmq.basics.lock_owner import is_mine
from fmq.errors import FmqError, Nested


class OwnedLock(_thread.RLock):  # type: ignore[misc]  # it is final only for mypy
    """A lock that raises Nested if a signal handler asks for it while its own thread holds it.

    Use it by `with`. An interrupt leaves it free: that of an RLock is let go in C, where Python
    looks for no signals.
    """

    def __enter__(self) -> bool:  # type: ignore[override]
        if is_mine(self):
            raise Nested
        try:
            return super().__enter__()
        except BaseException:
            if is_mine(self):  # an interrupt came before the block began, so release it
                self.release()
            raise

    def is_taken(self) -> bool:
        """Return whether this thread holds the lock. For tests."""
        return is_mine(self)


class Section:
    """A context manager around each change of the data that the engine's lock guards.

    A refusal is an FmqError or TypeError. It is raised before the first change, and leaves the
    engine as it was. Any other exception is given to `fail`, under the lock, and then goes to the
    caller. So is each exception after the block has set `changed`.
    """

    __slots__ = ("_fail", "changed")

    def __init__(self, fail: Callable[[BaseException], None]) -> None:
        self._fail = fail
        self.changed = False

    def __enter__(self) -> None:
        self.changed = False

    def refusal_of(self, change: Callable[..., object], *what: Any) -> Exception | None:
        """Call `change(*what)`, one of several changes in the block. Return its refusal, or None.

        A refusal leaves the changes before it as they are. Any other exception is raised.
        """
        changed, self.changed = self.changed, False
        try:
            change(*what)
        except Exception as error:
            if self.changed or not is_refusal(error):
                raise
            return error
        finally:
            self.changed = self.changed or changed
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:
            self.ended_by(error)

    def ended_by(self, error: BaseException) -> None:
        """Let the engine fail, unless `error` is a refusal before the first change."""
        if self.changed or not is_refusal(error):
            self._fail(error)


def is_refusal(error: BaseException) -> bool:
    """Return whether `error` is a refusal, which means that nothing was changed.

    Nested is no refusal: a signal handler that calls the engine in the middle of a change gets it,
    and may not catch it.
    """
    return isinstance(error, (FmqError, TypeError)) and not isinstance(error, Nested)
