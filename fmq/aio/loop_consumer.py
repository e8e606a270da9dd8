"""A consumer whose polls are awaited."""

from __future__ import annotations

from asyncio import sleep
from collections.abc import AsyncIterator, Callable
from math import inf
from types import TracebackType
from typing import Any

from fmq.aio.loop_delivery import AsyncDeliveries, AsyncDelivery, AsyncDeliveryBatch
from fmq.aio.loop_handlers import AsyncHandler, check_run, run
from fmq.arguments.names import check_count, check_seconds
from fmq.basics.message import Message
from fmq.consume.calls.handlers import give_back
from fmq.consume.calls.lookahead import Lookahead
from fmq.consume.claims.delivery import Delivery
from fmq.errors import Closed

POLL_SECONDS = 60.0  # one poll of an `async for` waits this long


class AsyncConsumer:
    """A member of a group, for the coroutines of one loop. `engine.consumer` makes it.

    It joins its group when its `async with` block begins, or at its first poll.
    """

    def __init__(
        self,
        side: Any,
        join: Callable[[], Any],
        topics: tuple[str, ...],
        group: str,
        member: str,
    ) -> None:
        """`join` returns the blocking consumer. A thread calls it."""
        self._side = side
        self._join = join
        self._topics = topics
        self._group = group
        self._member = member
        self._joined: Any = None
        self._closed = False

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics whose messages it takes."""
        return self._topics

    @property
    def group(self) -> str:
        """The group that it is a member of."""
        return self._group

    @property
    def member(self) -> str:
        """The name of this member in its group."""
        return self._member

    async def _consumer(self) -> Any:
        """Return the blocking consumer. If it has not joined the group yet, it joins now."""
        if self._joined is None:
            if self._closed:
                raise Closed("the consumer is closed; make another one with engine.consumer(...)")
            await self._side.threads.run(self._join_once)
        return self._joined

    def _join_once(self) -> None:
        with self._side.joining:
            if self._joined is None:
                self._joined = self._join()

    async def poll(self, *, limit: int = 100, timeout: float = 0.0) -> list[AsyncDelivery]:
        """Return up to `limit` deliveries; an empty list if none comes within `timeout` seconds."""
        side = self._side
        consumer = self._joined or await self._consumer()
        return [AsyncDelivery(side, each) for each in await side.poll(consumer, limit, timeout)]

    async def poll_batch(
        self, *, limit: int = 1000, timeout: float = 0.0
    ) -> AsyncDeliveryBatch | None:
        """Return up to `limit` messages of one queue, to be acked together.

        Return None if none comes within `timeout` seconds.
        """
        side = self._side
        consumer = self._joined or await self._consumer()
        found = await side.poll_batch(consumer, limit, timeout)
        return None if found is None else AsyncDeliveryBatch(side, found)

    async def take(
        self, *, limit: int = 1, timeout: float = 0.0, sync: bool | None = None
    ) -> list[Message]:
        """Return up to `limit` messages of one queue for good: their ack is durable on return.

        Return an empty list if none comes within `timeout` seconds.
        """
        consumer = self._joined or await self._consumer()
        found: list[Message] = await self._side.take(consumer, limit, timeout, sync)
        return found

    def __aiter__(self) -> AsyncIterator[AsyncDelivery]:
        """Yield deliveries one by one, and wait for each next one. The loop ends when the consumer
        closes or drains.

        For a quick program it reads ahead, at most what the program handles in a tenth of a second.
        Messages that the program has not seen when it leaves the loop are given back, and not
        counted as tried.
        """
        self._check()
        return self._each()

    def _check(self) -> None:
        """Raise if the consumer or its engine is closed."""
        if self._joined is not None:
            self._joined._check()

    async def _each(self) -> AsyncIterator[AsyncDelivery]:
        joined = self._joined or await self._consumer()
        ahead: Lookahead[Delivery] = joined._lookahead()
        joined._aheads.add(ahead)
        try:
            while not self._has_ended():
                delivery = ahead.next()
                if delivery is not None:
                    yield AsyncDelivery(self._side, delivery)
                    continue
                await self._give_back(ahead.rest())
                if ahead.wants_to_know():
                    ahead.note_others(await self._side.quickly(joined._count_members))
                limit = ahead.limit()
                if limit > 1:
                    await sleep(0)  # let the tasks of the last deliveries run first
                found = [each._delivery for each in await self._next(limit, POLL_SECONDS)]
                await self._give_back(ahead.fill(found))
        finally:
            joined._aheads.discard(ahead)
            await self._give_back(ahead.rest())

    async def _give_back(self, deliveries: list[Delivery]) -> None:
        """Give back deliveries that a loop has taken and that its program has not seen."""
        if deliveries:
            await self._side.threads.run(give_back, self._joined, deliveries)

    async def _one_by_one(self) -> AsyncIterator[AsyncDelivery]:
        """Yield deliveries, and hold only one at a time."""
        while not self._has_ended():
            for delivery in await self._next(1, POLL_SECONDS):
                yield delivery

    async def _next(self, limit: int, timeout: float) -> list[AsyncDelivery]:
        try:
            return await self.poll(limit=limit, timeout=timeout)
        except Closed:
            if not self._closed:
                raise
            return []

    def _has_ended(self) -> bool:
        return self._closed or self._has_drained()

    def _has_drained(self) -> bool:
        joined = self._joined
        return joined is not None and joined._draining.is_on

    def batches(self, max_size: int = 100, max_wait: float = 1.0) -> AsyncIterator[AsyncDeliveries]:
        """Yield up to `max_size` deliveries at a time, or fewer: those that have come within
        `max_wait` seconds of the first. The loop ends when the consumer closes or drains.
        """
        max_size, max_wait = check_count("max_size", max_size), check_seconds("max_wait", max_wait)
        self._check()
        return self._batches(max_size, max_wait)

    async def _batches(self, max_size: int, max_wait: float) -> AsyncIterator[AsyncDeliveries]:
        loop = self._side.loop
        while not self._has_ended():
            found = await self._next(max_size, POLL_SECONDS)
            deadline = loop.time() + max_wait
            while found and len(found) < max_size and not self._has_ended():
                more = await self._next(max_size - len(found), max(deadline - loop.time(), 0.0))
                if not more:
                    break
                found += more
            if found:
                yield AsyncDeliveries(self._side, self._joined, found)

    async def run(self, handler: AsyncHandler, *, workers: int = 1) -> None:
        """Give each delivery to `handler`, in `workers` tasks.

        `handler` is a function of an AsyncDelivery, or a coroutine function. A delivery is acked
        when the handler returns, and its lease is extended until then. If the handler raises, the
        delivery is tried again as `retry` says. The call returns when the consumer closes or
        drains. No signal ends it.
        """
        await self._consumer()
        workers = check_run(handler, workers)
        self._check()
        await run(self, handler, workers)

    async def drain(self, *, timeout: float = inf) -> bool:
        """Take nothing new, and wait until nothing is in hand. Return False if that takes longer
        than `timeout` seconds. From now on loops and `run` end, and polls return nothing.
        """
        consumer = self._joined or await self._consumer()
        found: bool = await self._side.threads.long(consumer.drain, timeout=timeout)
        return found

    async def close(self) -> None:
        """Leave the group. Messages that are not acked are redelivered to the other members. If the
        consumer was drained, their last attempt does not count.
        """
        await self._close(counts=not self._has_drained())

    async def _close(self, *, counts: bool) -> None:
        """Leave the group. Without `counts`, attempts of messages in hand do not count."""
        self._closed = True
        if self._joined is not None:
            await self._side.leave(self._joined, counts=counts)

    async def __aenter__(self) -> AsyncConsumer:
        await self._consumer()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Leave the group as `close` does. If an exit, an interrupt or a cancellation ends the
        block, attempts of messages in hand do not count.
        """
        if error is None:
            await self.close()
        else:
            await self._close(counts=isinstance(error, Exception))
