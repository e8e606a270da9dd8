"""A call that waits on a loop until there is something to answer, without a thread."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from threading import get_ident
from typing import Generic, TypeVar

from fmq.basics.clock import Clock
from fmq.server.host import Loop, Timer

T = TypeVar("T")
DAY = 86400.0  # a longer timer is more than some loops can take


class Waiting(Generic[T]):
    """A call that is answered as soon as there is something, or at its end."""

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
        """`look` returns an answer or None. `listen` has its argument called when it is worth to
        look again, and returns when to do so anyway; `stop` undoes that. While `is_choked`, nothing
        is looked for: the caller notifies when that is over. `pass_on` is called if it does not
        look, though it may have been notified: another call may find what this one would have.
        """
        self._loop = loop
        self._thread = get_ident()  # that of the loop
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
        """Look, and call `end` once, with the answer or an error."""
        self._end = end
        self._again()

    def notify(self) -> None:
        """Look again, soon. From any thread, under the engine's lock."""
        if get_ident() == self._thread:
            with suppress(RuntimeError):
                self._loop.call_soon(self._again)  # without the system calls that wake a loop
        else:
            with suppress(RuntimeError):  # the loop is closed, and nothing waits any more
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
                found = self._look()  # it may have come before there was a listener
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
        """End with nothing, now."""
        self._finish(None, None)
        self._pass_on()

    def cancel(self) -> None:
        """Do nothing more."""
        self._quiet()
        if self._end is not None:
            self._end = None
            self._pass_on()
