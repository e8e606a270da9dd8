"""Running a handler in threads: each worker is a thread, and the caller extends their leases.

It works alike for a consumer of this process's engine and for one of another process.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Lock, Thread, current_thread, get_ident, main_thread
from typing import Any

from fmq.consume.calls.iteration import has_ended, next_deliveries
from fmq.consume.claims.delivery import Delivery, give_up
from fmq.errors import FmqError

logger = logging.getLogger("fmq.consumers")
Handler = Callable[[Delivery], object]
# How often a lease is extended during its length.
EXTENSIONS = 3


def run(member: Any, handler: Handler, workers: int) -> None:
    """Give each delivery to `handler`, in `workers` threads, until `member` closes or drains.

    In the main thread SIGTERM ends the run, too.
    """
    Running(member, handler, workers).run()


def next_delivery(member: Any, done: Delivery | None = None) -> Delivery | None:
    """Ack `done`, and return the next delivery; None once the consumer closes or drains."""
    found: Delivery | None = None if done is None else member.advance(done)
    while found is None and not has_ended(member):
        found = next(iter(next_deliveries(member, 1)), None)
    return found


class Running:
    """One call of `run`."""

    def __init__(self, member: Any, handler: Handler, workers: int) -> None:
        """`member` is a member of an engine of this process or of another one."""
        self._member = member
        self._handler = handler
        self._in_hand: list[Delivery | None] = [None] * workers
        self._failure: BaseException | None = None
        self._is_stopping = False
        # The workers that are done. Their threads may live on for a moment.
        self._ended: list[int] = []
        # Released when a worker is done, or a signal has come.
        self._changed = Lock()
        self._changed.acquire()
        self._threads = [
            Thread(target=self._work, args=(number,), name=f"fmq worker {number}", daemon=True)
            for number in range(workers)
        ]

    def run(self) -> None:
        """Run until all workers have ended. Raises the error that has ended one of them."""
        # The workers handle deliveries. This thread extends their leases meanwhile.
        with self._until_sigterm(), self._member.draining.handling(get_ident()):
            for thread in self._threads:
                thread.start()
            try:
                self._wait()
            except BaseException:
                self._stop()
                # The workers finish what they have in hand; after a second interrupt they do not.
                self._wait()
                raise
            for thread in self._threads:
                thread.join()
        if self._failure is not None:
            raise self._failure

    def _wait(self) -> None:
        """Extend the leases of deliveries in hand, until all workers are done."""
        pause = self._member.lease_seconds / EXTENSIONS
        while len(self._ended) < len(self._threads):
            self._member.clock.wait(self._changed, pause)
            if self._is_stopping:
                self._stop()
            for delivery in self._in_hand:
                if delivery is not None:
                    self._extend(delivery)

    def _extend(self, delivery: Delivery) -> None:
        try:
            if not delivery.is_settled:
                delivery.extend(self._member.lease_seconds)
        except FmqError as error:
            if not delivery.is_settled:
                logger.warning("the lease of %r was not extended: %s", delivery, error)

    def _stop(self) -> None:
        """Let the consumer take nothing new."""
        self._is_stopping = True
        try:
            self._member.stop()
        except FmqError as error:  # the engine is closed, for example: there is nothing to take
            logger.debug("%s", error)

    def _wake(self) -> None:
        if self._changed.locked():
            with suppress(RuntimeError):  # another thread has released the lock meanwhile
                self._changed.release()

    @contextmanager
    def _until_sigterm(self) -> Iterator[None]:
        """Let SIGTERM end the run, if this is the main thread."""
        if current_thread() is not main_thread():
            yield
            return

        def stop(number: int, frame: object) -> None:
            # The signal may come while this thread holds a lock. So only set a flag, and wake the
            # thread.
            self._is_stopping = True
            self._wake()

        before = signal.signal(signal.SIGTERM, stop)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, before)

    # --- in a worker's thread -------------------------------------------------------------------

    def _work(self, number: int) -> None:
        try:
            with self._member.draining.handling(get_ident()):
                self._handle_each(number)
        except BaseException as error:
            self._failure = self._failure or error
            self._is_stopping = True
        finally:
            self._ended.append(number)
            self._wake()

    def _handle_each(self, number: int) -> None:
        done: Delivery | None = None
        while (delivery := next_delivery(self._member, done)) is not None:
            self._in_hand[number] = delivery
            try:
                done = self._handle(delivery)
            finally:
                self._in_hand[number] = None

    def _handle(self, delivery: Delivery) -> Delivery | None:
        """Call the handler. Return the delivery if it still has to be acked."""
        try:
            self._handler(delivery)
        except Exception as error:
            logger.warning("attempt %s of %r failed", delivery.attempt, delivery, exc_info=error)
            give_up(delivery, error)
            return None
        return None if delivery.is_settled else delivery
