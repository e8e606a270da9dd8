"""Running a handler in threads: each worker is a thread, and the caller's thread extends the
leases.

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
# How often a lease is extended during its length, and a handler looked at during its time limit.
LOOKS = 3


def run(member: Any, handler: Handler, workers: int, time_limit: float) -> None:
    """Give each delivery to `handler`, in `workers` threads, until `member` closes or drains.

    In the main thread SIGTERM ends the run, too.
    """
    Running(member, handler, workers, time_limit).run()


def too_long(time_limit: float) -> TimeoutError:
    """Return the error for a delivery that is given up because its handler works for longer than
    `time_limit` seconds.
    """
    return TimeoutError(f"the handler took longer than its time limit of {time_limit:g} s")


def next_delivery(member: Any, done: Delivery | None = None) -> Delivery | None:
    """Ack `done`, and return the next delivery; None once the consumer closes or drains."""
    found: Delivery | None = None if done is None else member.advance(done)
    while found is None and not has_ended(member):
        found = next(iter(next_deliveries(member, 1)), None)
    return found


class Running:
    """One call of `run`."""

    def __init__(self, member: Any, handler: Handler, workers: int, time_limit: float) -> None:
        """`member` is a member of a group, whose engine is in this process or in another one."""
        self._member = member
        self._handler = handler
        self._time_limit = time_limit
        # For each worker, what it handles and since when.
        self._in_hand: list[tuple[Delivery, float] | None] = [None] * workers
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
            for number in self._ended:
                self._threads[number].join()
        if self._failure is not None:
            raise self._failure

    def _wait(self) -> None:
        """Look after the deliveries in hand, until all workers are done. When the consumer ends,
        do not wait for a handler that took too long: it may never return.
        """
        pause = min(self._member.lease_seconds, self._time_limit) / LOOKS
        everyone = range(len(self._threads))
        while busy := [number for number in everyone if number not in self._ended]:
            if has_ended(self._member) and all(map(self._was_given_up, busy)):
                return
            self._member.clock.wait(self._changed, pause)
            if self._is_stopping:
                self._stop()
            for held in self._in_hand:
                if held is not None and not held[0].is_settled:
                    self._look_after(*held)

    def _was_given_up(self, number: int) -> bool:
        held = self._in_hand[number]
        return held is not None and held[0].is_settled and self._is_late(held[1])

    def _is_late(self, since: float) -> bool:
        return bool(self._member.clock.monotonic() - since > self._time_limit)

    def _look_after(self, delivery: Delivery, since: float) -> None:
        """Extend the lease of a delivery, or give it up if its handler takes too long."""
        try:
            if not self._is_late(since):
                delivery.extend(self._member.lease_seconds)
                return
            late = too_long(self._time_limit)
            logger.warning("attempt %s of %r failed: %s", delivery.attempt, delivery, late)
            give_up(delivery, late)
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
            self._in_hand[number] = delivery, self._member.clock.monotonic()
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
