"""Draining a consumer: it takes nothing new, and a caller waits until nothing is in hand."""

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
    """The state of draining of one consumer, and the calls that wait for its end."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiters: list[Lock] = []
        self._handling: list[int] = []  # threads that handle messages of the consumer
        self.is_on = False

    @contextmanager
    def handling(self) -> Iterator[None]:
        """Note that this thread handles messages in the block, so it must not wait for the
        drain.
        """
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
        """Call `stop_taking`, and wait until nothing is in hand. Return False if that takes longer
        than `timeout` seconds.

        A thread that handles messages does not wait. A signal handler may call this anywhere.
        """
        try:
            stop_taking()
            return self._wait(look, 0.0 if get_ident() in self._handling else timeout)
        except Nested:
            # A signal handler has interrupted a call of fmq in this thread. Let another thread stop
            # the taking; the interrupted call ends then.
            start_new_thread(_quietly, (stop_taking,))
            return False

    def changed(self) -> None:
        """Let the waiting calls look again, because a message is no longer in hand."""
        for lock in [*self._waiters]:
            if lock.locked():
                lock.release()

    def _wait(self, look: Callable[[], tuple[int, float]], timeout: float) -> bool:
        """Wait until nothing is in hand. `look` returns how many messages are, and when to look
        again even without a change.
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
    except FmqError as error:  # the engine is closed, for example: it hands out nothing
        logger.debug("%s", error)
