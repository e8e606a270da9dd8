"""Polls that compete for the messages of a group: one of them is woken, and it wakes the next.

If a thousand members wait for a message, one of them gets it. Waking all would cost the sender
their time. So all polls of a loop that would find the same messages share one listener, which wakes
the poll that has waited longest. That poll wakes the next one if it finds something, as there may
be more, or if it is cancelled. The first that finds nothing waits again, and so does the listener.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable
from contextlib import suppress
from math import inf
from threading import get_ident
from typing import Any

from fmq.store.commit_queue import CommitQueue

DAY = 86400.0  # a longer timer is more than some loops can take
Notify = Callable[[], None]


class GroupWaits:
    """The polls of one loop that wait for the same messages. By the loop's thread."""

    def __init__(
        self, loop: AbstractEventLoop, commit_queue: CommitQueue, monotonic: Callable[[], float]
    ) -> None:
        self._loop = loop
        self._thread = get_ident()
        self._commit_queue = commit_queue
        self._monotonic = monotonic
        self._waiting: dict[Notify, Any] = {}  # callback -> consumer; the first is next
        self._listens: Any = None  # the consumer by which it listens
        self._timer: TimerHandle | None = None

    def listen(self, consumer: Any, notify: Notify) -> float:
        """Have `notify` called when its poll is the next to look."""
        with self._commit_queue.lock:
            consumer._member.waiting.add(notify)  # so that the group sees that its member lives
        self._waiting[notify] = consumer
        if self._listens is None:
            self._begin(consumer)
        return inf

    def stop(self, consumer: Any, notify: Notify) -> None:
        """Do not call `notify` any more."""
        with self._commit_queue.lock:
            consumer._member.waiting.discard(notify)
        self._waiting.pop(notify, None)
        if not self._waiting:
            self._end()

    def wake_next(self) -> None:
        """Let the poll that has waited longest look."""
        for notify in self._waiting:
            del self._waiting[notify]
            notify()
            break

    def _begin(self, consumer: Any) -> None:
        self._listens = consumer
        later = max(consumer._listen_for(self._fired) - self._monotonic(), 0.0)
        self._timer = self._loop.call_later(min(later, DAY), self._wake)

    def _end(self) -> None:
        consumer, self._listens = self._listens, None
        if consumer is not None:
            consumer._stop_listening(self._fired)
        if self._timer is not None:
            self._timer.cancel()

    def _fired(self) -> None:
        """Have the next poll look soon. By any thread, under the engine's lock."""
        call = self._loop.call_soon
        if get_ident() != self._thread:
            call = self._loop.call_soon_threadsafe
        with suppress(RuntimeError):  # the loop is closed, and nothing waits any more
            call(self._wake)

    def _wake(self) -> None:
        self._end()
        self.wake_next()
