"""A consumer whose polls are awaited."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Any

from fmq.aio.delivery import AsyncDelivery, AsyncDeliveryBatch
from fmq.errors import Closed
from fmq.message import Message

POLL_SECONDS = 60.0  # for how long one poll of an `async for` waits


class AsyncConsumer:
    """A member of a group, for the coroutines of one loop. Made by `engine.consumer`.

    It joins its group at the beginning of its `async with` block, or at its first poll.
    """

    def __init__(
        self,
        side: Any,
        join: Callable[[], Any],
        topics: tuple[str, ...],
        group: str,
        member: str,
    ) -> None:
        """`join` returns the blocking consumer, in a thread."""
        self._side = side
        self._join = join
        self._topics = topics
        self._group = group
        self._member = member
        self._joined: Any = None
        self._closed = False

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics whose messages it shares."""
        return self._topics

    @property
    def group(self) -> str:
        """The group that it is a member of."""
        return self._group

    @property
    def member(self) -> str:
        """Its name in the group."""
        return self._member

    async def _consumer(self) -> Any:
        """Return the blocking consumer, and join the group before if that was not done yet."""
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
        """Return up to `limit` deliveries, or none if none comes within `timeout` seconds."""
        side = self._side
        consumer = self._joined or await self._consumer()
        return [AsyncDelivery(side, each) for each in await side.poll(consumer, limit, timeout)]

    async def poll_batch(
        self, *, limit: int = 1000, timeout: float = 0.0
    ) -> AsyncDeliveryBatch | None:
        """Return up to `limit` messages of one queue, to be acked together.

        Return None if there is none for `timeout` seconds.
        """
        side = self._side
        consumer = self._joined or await self._consumer()
        found = await side.poll_batch(consumer, limit, timeout)
        return None if found is None else AsyncDeliveryBatch(side, found)

    async def take(
        self, *, limit: int = 1, timeout: float = 0.0, sync: bool | None = None
    ) -> list[Message]:
        """Return up to `limit` messages of one queue for good: their ack is durable.

        Return none if none comes within `timeout` seconds.
        """
        consumer = self._joined or await self._consumer()
        found: list[Message] = await self._side.take(consumer, limit, timeout, sync)
        return found

    async def __aiter__(self) -> AsyncIterator[AsyncDelivery]:
        """Yield deliveries for ever. It holds at most what one poll takes."""
        while True:
            for delivery in await self.poll(timeout=POLL_SECONDS):
                yield delivery

    async def close(self) -> None:
        """Leave the group. What is not acked is redelivered to the other members."""
        self._closed = True
        if self._joined is not None:
            await self._side.leave(self._joined)

    async def __aenter__(self) -> AsyncConsumer:
        await self._consumer()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()
