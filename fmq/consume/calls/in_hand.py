"""What a consumer has in hand, and how it drains: it takes nothing new, and a caller waits until
nothing is in hand.
"""

from __future__ import annotations

import logging
from _thread import start_new_thread
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from math import inf
from threading import Lock, get_ident
from typing import Any, Self

from fmq.basics.clock import Clock
from fmq.consume.calls.lookahead import Lookahead
from fmq.consume.claims.delivery import Delivery
from fmq.consume.claims.handed import HandedRange, joined, range_of
from fmq.errors import FmqError, LeaseLost, Nested

logger = logging.getLogger("fmq.consumers")


class Draining:
    """The state of draining of one consumer, and the calls that wait for its end."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiters: list[Lock] = []
        self._handling: list[object] = []  # the callers that handle what the consumer gives them
        self.is_on = False

    @contextmanager
    def handling(self, caller: object) -> Iterator[None]:
        """Note that a thread or a task handles messages in the block. A drain that it calls does
        not wait for these messages.
        """
        self._handling.append(caller)
        try:
            yield
        finally:
            self._handling.remove(caller)

    def patience(self, caller: object, timeout: float) -> float:
        """Return how long a thread or a task may wait until nothing is in hand."""
        return 0.0 if caller in self._handling else timeout

    def drain(
        self,
        stop_taking: Callable[[], object],
        look: Callable[[], tuple[int, float]],
        timeout: float,
    ) -> bool:
        """Call `stop_taking`, and wait until nothing is in hand. Return False if that takes longer
        than `timeout` seconds.

        A signal handler may call this anywhere.
        """
        try:
            stop_taking()
            return self._wait(look, timeout)
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
        """Wait until nothing is in hand. `look` returns how many messages are in hand, and by which
        time to look again if nothing changes.
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


class InHand:
    """A member of a group, as far as it counts what its program has in hand, and drains.

    Threads use it. The group is in this process or in another one.
    """

    caller = staticmethod(get_ident)
    loop_seconds = inf

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.monotonic = clock.monotonic
        self.draining = Draining(clock)
        self.is_closed = False
        # What each `for` loop over the consumer has polled ahead.
        self.aheads: set[Lookahead[Delivery]] = set()

    @property
    def blocking(self) -> Self:
        """The member itself. The member of a loop has a blocking one, which it returns here."""
        return self

    def give_back(self, claim: Any, first: int, end: int, delay: float, *, count: bool) -> None:
        """Redeliver these messages after `delay` seconds. Raises LeaseLost."""
        raise NotImplementedError

    def stop_taking(self) -> None:
        """Let the consumer take nothing new."""
        raise NotImplementedError

    def in_hand(self) -> tuple[int, float]:
        """Return how many messages are in hand, and when the first of their leases ends."""
        raise NotImplementedError

    def give_back_unseen(self, deliveries: Iterable[HandedRange]) -> None:
        """Redeliver deliveries that a `for` loop has polled and its program has not seen."""
        for claim, first, end in joined(map(range_of, deliveries)):
            try:
                self.give_back(claim, first, end, 0.0, count=False)
            except LeaseLost:  # perhaps only one lease is lost: try each delivery alone
                for each in range(first, end):
                    with suppress(FmqError):
                        self.give_back(claim, each, each + 1, 0.0, count=False)
            except FmqError as error:  # for example Closed: closing the engine gives all back
                logger.debug("%s", error)

    def stop(self) -> None:
        """Take nothing new, and give back what `for` loops have polled and not yet yielded."""
        self.stop_taking()
        for ahead in [*self.aheads]:
            self.give_back_unseen(ahead.rest())

    def drain(self, timeout: float) -> bool:
        """Take nothing new. Wait up to `timeout` seconds, and return whether nothing is in hand."""
        timeout = self.draining.patience(get_ident(), timeout)
        return self.draining.drain(self.stop, self.in_hand, timeout)


def _quietly(stop_taking: Callable[[], object]) -> None:
    try:
        stop_taking()
    except FmqError as error:  # the engine is closed, for example: it hands out nothing
        logger.debug("%s", error)
