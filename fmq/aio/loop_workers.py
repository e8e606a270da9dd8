"""Running a handler on a loop: a task for each worker, and leases that are extended meanwhile."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from math import isinf
from typing import Any

from fmq.aio.face.delivery import AsyncDelivery, give_up
from fmq.aio.face.iteration import has_ended, next_deliveries
from fmq.consume.calls.workers import LOOKS, too_long
from fmq.errors import LeaseLost

logger = logging.getLogger("fmq.consumers")
AsyncHandler = Callable[[AsyncDelivery], Awaitable[object] | object]


async def run(member: Any, handler: AsyncHandler, workers: int, time_limit: float) -> None:
    """Give each delivery to `handler`, in `workers` tasks, until `member` closes or drains."""
    await member.join()

    async def work() -> None:
        with member.draining.handling(member.caller()):
            while not has_ended(member):
                for delivery in await next_deliveries(member, 1):
                    await _handle(member, handler, time_limit, delivery)

    with member.draining.handling(member.caller()):
        async with asyncio.TaskGroup() as group:
            for _ in range(workers):
                group.create_task(work())


async def _handle(
    member: Any, handler: AsyncHandler, time_limit: float, delivery: AsyncDelivery
) -> None:
    keeping = _Keeping(member, delivery)
    limit = asyncio.timeout(None if isinf(time_limit) else time_limit)
    try:
        async with limit:
            result = handler(delivery)
            if isawaitable(result):
                await result
    except Exception as error:
        failure = too_long(time_limit) if limit.expired() else error
        logger.warning("attempt %s of %r failed", delivery.attempt, delivery, exc_info=failure)
        await give_up(delivery, failure)
        return
    except BaseException as error:  # the task was cancelled: another worker may handle it
        await give_up(delivery, error)
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

    def __init__(self, member: Any, delivery: AsyncDelivery) -> None:
        self._member = member
        self._delivery = delivery
        self._later()

    def _later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(
            self._member.lease_seconds / LOOKS, self._extend
        )

    def _extend(self) -> None:
        if not self._delivery.is_settled:
            self._member.keep(self._delivery)
            self._later()

    def end(self) -> None:
        """Stop extending the lease."""
        self._timer.cancel()
