"""Draining a consumer: it takes nothing new, and a caller waits for what is in hand."""

from __future__ import annotations

import logging
from _thread import start_new_thread
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock, get_ident

from fmq.basics.clock import Clock
from fmq.errors import FmqError, Nested

logger = logging.getLogger("fmq.consumers")


class Draining:
    """Whether one consumer is drained, and the calls that wait until nothing is in hand."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiters: list[Lock] = []
        self._handling: list[int] = []  # the threads that handle what the consumer gives them
        self.is_on = False

    @contextmanager
    def handling(self) -> Iterator[None]:
        """Note that this thread handles messages in the block. It cannot wait for itself."""
        me = get_ident()
        self._handling.append(me)
        try:
            yield
        finally:
            self._handling.remove(me)

    def drain(
        self,
        stop_taking: Callable[[], object],
        look: Callable[[], tuple[int, float]],
        timeout: float,
    ) -> bool:
        """Take nothing new, by `stop_taking`. Return True once nothing is in hand, or False after
        `timeout` seconds.

        A thread that handles messages does not wait. A signal handler may call this anywhere.
        """
        try:
            stop_taking()
            return self._wait(look, 0.0 if get_ident() in self._handling else timeout)
        except Nested:
            # The call that the signal has interrupted ends once another thread wakes it.
            start_new_thread(_quietly, (stop_taking,))
            return False

    def changed(self) -> None:
        """Let the calls that wait look again, because something is no longer in hand."""
        for lock in [*self._waiters]:
            if lock.locked():
                lock.release()

    def _wait(self, look: Callable[[], tuple[int, float]], timeout: float) -> bool:
        """Wait until nothing is in hand. `look` returns how much is, and when to look again even
        without a change.
        """
        deadline = self._clock.monotonic() + timeout
        while True:
            lock = Lock()
            lock.acquire()
            self._waiters.append(lock)
            try:
                count, until = look()
                now = self._clock.monotonic()
                if not count or now >= deadline:
                    return not count
                self._clock.wait(lock, max(min(until, deadline) - now, 0.0))
            finally:
                self._waiters.remove(lock)


def _quietly(stop_taking: Callable[[], object]) -> None:
    try:
        stop_taking()
    except FmqError as error:  # such as that the engine is closed, where nothing is taken
        logger.debug("%s", error)
