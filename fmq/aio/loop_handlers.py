"""Running a handler on a loop: a task for each worker, and leases that are extended meanwhile."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import Any

from fmq.aio.loop_delivery import AsyncDelivery
from fmq.arguments.names import check_count
from fmq.consume.calls.handlers import EXTENSIONS, WORKERS_MAX
from fmq.errors import LeaseLost, TooMany

logger = logging.getLogger("fmq.consumers")
AsyncHandler = Callable[[AsyncDelivery], Awaitable[object] | object]


async def run(consumer: Any, handler: AsyncHandler, workers: int) -> None:
    """Give each delivery to `handler`, in `workers` tasks, until `consumer` closes or drains."""

    async def work() -> None:
        async for delivery in consumer._one_by_one():
            await _handle(consumer, handler, delivery)

    async with asyncio.TaskGroup() as group:
        for _ in range(workers):
            group.create_task(work())


def check_run(handler: object, workers: int) -> int:
    """Return the number of workers of a run if it is right. Raises TypeError, BadOption or
    TooMany.
    """
    if not callable(handler):
        raise TypeError(f"handler={handler!r}: is a function of a delivery. Nothing was changed.")
    workers = check_count("workers", workers)
    if workers > WORKERS_MAX:
        raise TooMany("workers", workers, WORKERS_MAX, "fixed by fmq")
    return workers


async def _handle(consumer: Any, handler: AsyncHandler, delivery: AsyncDelivery) -> None:
    keeping = _Keeping(consumer, delivery)
    try:
        result = handler(delivery)
        if isawaitable(result):
            await result
    except Exception as error:
        logger.warning("attempt %s of %r failed", delivery.attempt, delivery, exc_info=error)
        await delivery._fail(error)
        return
    except BaseException:  # the task was cancelled: another consumer may get the message
        if not delivery.is_settled:
            await delivery.release(count=False)
        raise
    finally:
        keeping.end()
    if not delivery.is_settled:
        try:
            await delivery.ack()
        except LeaseLost as error:
            logger.warning("handled, and not acked: %s", error)


class _Keeping:
    """Extends the lease of a delivery while it is handled."""

    def __init__(self, consumer: Any, delivery: AsyncDelivery) -> None:
        self._side = consumer._side
        self._delivery = delivery
        joined = consumer._joined
        self._seconds: float = getattr(joined, "_lease_seconds", 0.0)
        self._timer = self._later()

    def _later(self) -> asyncio.TimerHandle:
        timer: asyncio.TimerHandle = self._side.loop.call_later(
            self._seconds / EXTENSIONS, self._extend
        )
        return timer

    def _extend(self) -> None:
        if not self._delivery.is_settled:
            inner = self._delivery._delivery
            self._side.threads.soon(lambda: inner.extend(self._seconds))
            self._timer = self._later()

    def end(self) -> None:
        """Stop extending the lease."""
        self._timer.cancel()
