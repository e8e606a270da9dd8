"""The callers that wait for a write of the commit queue: a sleeping thread, or a callback.

Nothing else in fmq knows how a caller waits. Each is told once what became of its append.
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
    """A thread that waits for its append to become durable; or the committer, which waits for the
    lead.

    It sleeps on a lock of its own, so it is woken only when it is served or leads.
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
        self.thread = 0  # the thread may call again before it leaves the queue
        self.wake()

    def wake(self) -> None:
        """Wake the thread, unless it was woken before. The caller holds the engine's lock."""
        if self.lock.locked():
            self.lock.release()


class Suspends(Protocol):
    """A call on an event loop that is suspended instead of waiting, so that its thread goes on."""

    def until_called(self, begin: Callable[[Then], T]) -> tuple[T, BaseException | None]:
        """Call `begin` with a callback, and wait for the callback. Return the result of `begin`,
        and the callback's argument.
        """
