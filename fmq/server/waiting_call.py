"""A call that waits on a loop, without a thread, until there is an answer."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from threading import get_ident
from typing import Generic, TypeVar

from fmq.basics.clock import Clock
from fmq.server.host import Loop, Timer

T = TypeVar("T")
DAY = 86400.0  # some loops cannot take a longer timer


class Waiting(Generic[T]):
    """A call that is answered as soon as `look` finds something, or at its timeout."""

    def __init__(
        self,
        loop: Loop,
        clock: Clock,
        timeout: float,
        is_choked: Callable[[], bool],
        look: Callable[[], T | None],
        listen: Callable[[Callable[[], None]], float],
        stop: Callable[[Callable[[], None]], None],
        pass_on: Callable[[], None] = lambda: None,
    ) -> None:
        """`look` returns an answer or None. `listen(notify)` has `notify` called when another look
        may find something, and returns when to look even without a call; `stop` ends that. While
        `is_choked()`, there are no looks; the caller notifies when that is over. `pass_on` is
        called if this call was perhaps woken and does not look: then another call should be woken.
        """
        self._loop = loop
        self._thread = get_ident()  # the thread of the loop
        self._clock = clock
        self._deadline = clock.monotonic() + timeout
        self._is_choked = is_choked
        self._look = look
        self._listen = listen
        self._stop = stop
        self._pass_on = pass_on
        self._timer: Timer | None = None
        self._end: Callable[[T | None, Exception | None], None] | None = None
        self._is_listening = False

    def begin(self, end: Callable[[T | None, Exception | None], None]) -> None:
        """Look for the first time. `end` is called once, now or later, with the answer or
        an error.
        """
        self._end = end
        self._again()

    def notify(self) -> None:
        """Look again soon. Any thread may call this, and holds the engine's lock."""
        if get_ident() == self._thread:
            with suppress(RuntimeError):
                # Call_soon is enough in the loop's own thread: the loop is awake.
                self._loop.call_soon(self._again)
        else:
            with suppress(RuntimeError):  # the loop is closed: no call waits any more
                self._loop.call_soon_threadsafe(self._again)

    def _again(self) -> None:
        if self._end is None:
            return
        self._quiet()
        try:
            now = self._clock.monotonic()
            if self._is_choked():
                self._pass_on()
                if now < self._deadline:
                    self._timer = self._loop.call_later(min(self._deadline - now, DAY), self._again)
                    return
                self._finish(None, None)
                return
            found = self._look()
            if found is None and now < self._deadline:
                until = min(self._deadline, self._listen(self.notify))
                self._is_listening = True
                found = self._look()  # a message may have come before `listen`
                if found is None:
                    later = min(max(until - now, 0.0), DAY)
                    self._timer = self._loop.call_later(later, self._again)
                    return
        except Exception as error:
            self._finish(None, error)
            return
        self._finish(found, None)

    def _finish(self, found: T | None, error: Exception | None) -> None:
        end, self._end = self._end, None
        self._quiet()
        if end is not None:
            end(found, error)

    def _quiet(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._is_listening:
            self._is_listening = False
            self._stop(self.notify)

    def give_up(self) -> None:
        """End now, with nothing."""
        self._finish(None, None)
        self._pass_on()

    def cancel(self) -> None:
        """End without calling `end`."""
        self._quiet()
        if self._end is not None:
            self._end = None
            self._pass_on()
