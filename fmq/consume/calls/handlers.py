"""Handling messages one by one or in batches, for the `for` loops and `run` of a consumer.

This works alike for a consumer of an engine in this process and of one in another process.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from threading import Lock, Thread, current_thread, main_thread
from typing import Any, TypeVar

from fmq.arguments.names import check_count, check_seconds
from fmq.basics.clock import Clock
from fmq.consume.calls.lookahead import Lookahead
from fmq.consume.claims.delivery import Deliveries, Delivery
from fmq.errors import Closed, FmqError, LeaseLost, TooMany

logger = logging.getLogger("fmq.consumers")
C = TypeVar("C")
Handler = Callable[[Delivery], object]
WORKERS_MAX = 1000
# How often a lease is extended during its length.
EXTENSIONS = 3


def each_delivery(consumer: Any) -> Iterator[Delivery]:
    """Yield deliveries one by one, and wait for each next one. End when `consumer` closes or
    drains.
    """
    consumer._check()
    return _each(consumer, consumer._lookahead())


def _each(consumer: Any, ahead: Lookahead[Delivery]) -> Iterator[Delivery]:
    aheads: set[Lookahead[Delivery]] = consumer._aheads
    aheads.add(ahead)
    try:
        with consumer._draining.handling():
            while not (consumer._draining.is_on or consumer._closed):
                delivery = ahead.next()
                if delivery is not None:
                    yield delivery
                    continue
                give_back(consumer, ahead.rest())
                if ahead.wants_to_know():
                    ahead.note_others(consumer._count_members())
                found = consumer._next_few(ahead.limit())
                give_back(consumer, ahead.fill(found))
    finally:
        aheads.discard(ahead)
        give_back(consumer, ahead.rest())


def give_back(consumer: Any, deliveries: list[Delivery]) -> None:
    """Give back deliveries that a loop has taken and that its program has not seen."""
    for claim, first, end in joined((each._claim, *each._offsets()) for each in deliveries):
        try:
            consumer._give_back(claim, first, end, 0.0, count=False)
        except LeaseLost:  # perhaps only a part is lost: try each
            for each in range(first, end):
                with suppress(FmqError):
                    consumer._give_back(claim, each, each + 1, 0.0, count=False)
        except FmqError as error:  # the engine is closed, for example: that gives all back
            logger.debug("%s", error)


def give_back_aheads(consumer: Any) -> None:
    """Give back what the loops over a consumer have taken ahead, because it takes nothing new."""
    for ahead in [*consumer._aheads]:
        give_back(consumer, ahead.rest())


def batches(consumer: Any, max_size: int, max_wait: float) -> Iterator[Deliveries]:
    """Yield up to `max_size` deliveries at a time, or fewer: those that have come within `max_wait`
    seconds of the first. End when `consumer` closes or drains.
    """
    max_size, max_wait = check_count("max_size", max_size), check_seconds("max_wait", max_wait)
    consumer._check()
    clock: Clock = consumer._clock
    return _batches(consumer, clock, max_size, max_wait)


def _batches(consumer: Any, clock: Clock, max_size: int, max_wait: float) -> Iterator[Deliveries]:
    with consumer._draining.handling():
        yield from _each_batch(consumer, clock, max_size, max_wait)


def _each_batch(
    consumer: Any, clock: Clock, max_size: int, max_wait: float
) -> Iterator[Deliveries]:
    while (first := consumer._next()) is not None:
        found = Deliveries(consumer, [first])
        deadline = clock.monotonic() + max_wait
        while len(found) < max_size and not consumer._draining.is_on:
            left = max(deadline - clock.monotonic(), 0.0)
            more = consumer.poll(limit=max_size - len(found), timeout=left)
            if not more:
                break
            found += more
        yield found


def next_delivery(consumer: Any, timeout: float, done: Delivery | None = None) -> Delivery | None:
    """Ack `done`, and return the next delivery; None once `consumer` closes or drains. Each poll
    waits up to `timeout` seconds.
    """
    if done is not None:
        found_now: Delivery | None = consumer._advance(done)
        if found_now is not None:
            return found_now
    found = next_deliveries(consumer, timeout, 1)
    return found[0] if found else None


def next_deliveries(consumer: Any, timeout: float, limit: int) -> list[Delivery]:
    """Return up to `limit` next deliveries; an empty list once `consumer` closes or drains. Each
    poll waits up to `timeout` seconds.
    """
    while not (consumer._draining.is_on or consumer._closed):
        try:
            found: list[Delivery] = consumer.poll(limit=limit, timeout=timeout)
        except Closed:
            if not consumer._closed:
                raise
            break
        if found:
            return found
    return []


def joined(ranges: Iterable[tuple[C, int, int]]) -> list[tuple[C, int, int]]:
    """Join the ranges of each claim that are adjacent."""
    found: list[tuple[C, int, int]] = []
    for claim, first, end in ranges:
        if found and found[-1][0] is claim and found[-1][2] == first:
            found[-1] = claim, found[-1][1], end
        else:
            found.append((claim, first, end))
    return found


def found_twice(ranges: Iterable[tuple[C, int, int]]) -> tuple[C, int] | None:
    """Return the claim and the offset of a message that is in two of the ranges; None if there is
    none.
    """
    ends: dict[int, int] = {}  # by claim: the end of its last range
    for claim, first, end in sorted(ranges, key=lambda each: each[1:]):
        if first < ends.get(id(claim), 0):
            return claim, first
        ends[id(claim)] = end
    return None


def run(consumer: Any, handler: Handler, workers: int) -> None:
    """Give each delivery to `handler`, in `workers` threads, until `consumer` closes or drains.

    In the main thread SIGTERM drains it.
    """
    if not callable(handler):
        raise TypeError(f"handler={handler!r}: is a function of a delivery. Nothing was changed.")
    workers = check_count("workers", workers)
    if workers > WORKERS_MAX:
        raise TooMany("workers", workers, WORKERS_MAX, "fixed by fmq")
    consumer._check()
    Running(consumer, handler, workers).run()


class Running:
    """One call of `run`."""

    def __init__(self, consumer: Any, handler: Handler, workers: int) -> None:
        self._consumer = consumer
        self._handler = handler
        self._clock: Clock = consumer._clock
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
        with self._until_sigterm(), self._consumer._draining.handling():
            for thread in self._threads:
                thread.start()
            try:
                self._wait()
            except BaseException:
                self._stop()
                self._wait()  # finish what is in hand; a second interrupt does not
                raise
            for thread in self._threads:
                thread.join()
        if self._failure is not None:
            raise self._failure

    def _wait(self) -> None:
        """Extend the leases of deliveries in hand, until all workers are done."""
        pause = self._consumer._lease_seconds / EXTENSIONS
        while len(self._ended) < len(self._threads):
            self._clock.wait(self._changed, pause)
            if self._is_stopping:
                self._stop()
            for delivery in self._in_hand:
                if delivery is not None:
                    self._extend(delivery)

    def _extend(self, delivery: Delivery) -> None:
        try:
            if not delivery.is_settled:
                delivery.extend(self._consumer._lease_seconds)
        except FmqError as error:
            if not delivery.is_settled:
                logger.warning("the lease of %r was not extended: %s", delivery, error)

    def _stop(self) -> None:
        """Let the consumer take nothing new."""
        self._is_stopping = True
        try:
            self._consumer._stop_taking()
        except FmqError as error:  # the engine is closed, for example: there is nothing to take
            logger.debug("%s", error)

    def _wake(self) -> None:
        if self._changed.locked():
            with suppress(RuntimeError):  # another thread has released it meanwhile
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
            with self._consumer._draining.handling():
                self._handle_each(number)
        except BaseException as error:
            self._failure = self._failure or error
            self._is_stopping = True
        finally:
            self._ended.append(number)
            self._wake()

    def _handle_each(self, number: int) -> None:
        done: Delivery | None = None
        while (delivery := self._consumer._next(done)) is not None:
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
            fail(delivery, error)
            return None
        return None if delivery.is_settled else delivery


def fail(delivery: Any, error: BaseException) -> None:
    """Give a delivery back because of `error`, unless it is settled. It waits as its consumer's
    `retry` says, or becomes a dead letter if that was the last attempt. An error that ends the
    program (an exit, an interrupt) counts as no attempt.
    """
    if delivery.is_settled:
        return
    retry = delivery._consumer._retry
    try:
        if not isinstance(error, Exception):
            delivery.release(count=False)  # the program ends, or its task is cancelled
        elif retry.is_last(delivery.attempt):
            try:
                delivery.reject(_reason(error))
                return
            except LeaseLost:
                raise
            except FmqError as refusal:
                logger.warning("%r is no dead letter, and is tried again: %s", delivery, refusal)
            delivery.release(delay=retry.longest)
        else:
            delivery.release(delay=retry.delay(delivery.attempt))
    except LeaseLost as lost:
        logger.warning("%s", lost)


def used_up(attempts: int, *, given_back: bool) -> str:
    """Return the reason for a dead letter whose last attempt ended without an error."""
    if given_back:
        return f"attempt {attempts} was given back, and there is no other one"
    return f"attempt {attempts} did not end: its lease or its process ended before"


def _reason(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
