"""The callers that wait for a write of the commit queue: a sleeping thread, or a callback.

A caller joins the `waiters` of the write that will hold its append. It is served exactly once: when
the write is durable, or when the engine has failed. `serve` is called by the thread that has
written, under the engine's lock:

    Waiter      wakes the thread, which sleeps on a lock of its own
    Callback    calls a function, for example one that wakes an event loop

A Waiter can also be given the lead (commit_queue.py): then it is woken with `leads` set, and writes
itself. Nothing else in fmq knows how a caller waits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol, TypeVar

T = TypeVar("T")
Then = Callable[[BaseException | None], None]
"""Called once: with None when an append is durable, or with the error that ended the engine."""


class Callback:
    """A function that is called once its append is durable, or the engine has failed."""

    __slots__ = ("_then",)

    def __init__(self, then: Then) -> None:
        self._then: Then | None = then

    def serve(self, failure: BaseException | None) -> None:
        """Call the function, once. The caller holds the engine's lock."""
        then, self._then = self._then, None
        if then is not None:
            then(failure)


class Waiter:
    """A thread that waits for its append to become durable. Or the committer, which waits for the
    lead.

    The thread sleeps on a lock of its own. So it is woken only if it is served or gets the lead.
    """

    __slots__ = ("failed", "leads", "lock", "thread")

    def __init__(self, thread: int) -> None:
        self.lock = threading.Lock()
        self.lock.acquire()
        self.thread = thread
        self.failed = False
        self.leads = False

    def serve(self, failure: BaseException | None) -> None:
        """Wake the thread, with the outcome of its append. The caller holds the engine's lock."""
        self.failed = failure is not None
        self.thread = 0  # the thread may call again before it is out of the queue
        self.wake()

    def wake(self) -> None:
        """Wake the thread, unless it was woken before. The caller holds the engine's lock."""
        if self.lock.locked():
            self.lock.release()


class Suspends(Protocol):
    """A call on an event loop that is suspended instead of waiting, so that its thread goes on."""

    def until_called(self, begin: Callable[[Then], T]) -> tuple[T, BaseException | None]:
        """Call `begin` with a callback, and suspend the call until the callback is called. Return
        the result of `begin`, and the argument of the callback.
        """
