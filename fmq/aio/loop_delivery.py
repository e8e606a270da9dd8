"""The deliveries that a poll on a loop returns. Their acks are awaited."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Iterable, Mapping
from datetime import datetime
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from fmq.aio.call import end_of, written
from fmq.basics.message import Message
from fmq.consume.claims import delivery as blocking
from fmq.store.bytes.kinds import AckRange

D = TypeVar("D", blocking.Delivery, blocking.DeliveryBatch)


class AsyncRange(Generic[D]):
    """Consecutive messages of one queue that are acked or given back together."""

    __slots__ = ("_delivery", "_side")

    def __init__(self, side: Any, delivery: D) -> None:
        self._side = side
        self._delivery: D = delivery

    @property
    def topic(self) -> str:
        return self._delivery.topic

    @property
    def queue(self) -> int:
        return self._delivery.queue

    @property
    def offset(self) -> int:
        """The offset of the first message."""
        return self._delivery.offset

    async def ack(self, *, sync: bool | None = None) -> None:
        """Record that the group has handled the messages. The ack is durable on return, as a send
        is.

        `sync` overrides the engine's option. Raises LeaseLost if the messages were redelivered
        meanwhile.
        """
        call = self._side.ack(self._delivery, sync)
        try:
            await call.future
        except CancelledError as cancelled:
            await end_of(call, cancelled, written)
        finally:
            if call.is_settled and call.error is None:
                self._delivery._settled = True
                self._delivery._consumer._draining.changed()

    @property
    def is_settled(self) -> bool:
        """True once the delivery was acked, given back or rejected, or is part of a transaction."""
        return self._delivery.is_settled

    async def extend(self, seconds: float) -> None:
        """Let the lease end `seconds` from now. Raises LeaseLost."""
        await self._side.quickly(self._delivery.extend, seconds)

    async def _fail(self, error: BaseException) -> None:
        """Give the messages back because of `error`. They are tried again as their consumer's
        `retry` says, or become dead letters if that was the last attempt.
        """
        await self._side.threads.run(self._delivery._consumer._fail, self._delivery, error)

    # A transaction that is bound to a database holds the messages like blocking deliveries.

    def _hold_for_transaction(self, keeper: object, holder: object) -> AckRange:
        return self._delivery._hold_for_transaction(keeper, holder)

    def _check_held_for_transaction(self, holder: object) -> None:
        self._delivery._check_held_for_transaction(holder)

    def _end_hold_for_transaction(self, holder: object) -> None:
        self._delivery._end_hold_for_transaction(holder)

    def _offsets(self) -> tuple[int, int]:
        return self._delivery._offsets()

    @property
    def _consumer(self) -> Any:
        return self._delivery._consumer

    @property
    def _claim(self) -> Any:
        return self._delivery._claim

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Ack at the end of the block, or give back if the block raises, unless the block did so
        itself.
        """
        if error is not None:
            await self._fail(error)
        elif not self.is_settled:
            await self.ack()

    @property
    def attempt(self) -> int:
        """How often the group has tried it, this time included: 1 is the first attempt."""
        return self._delivery.attempt

    async def release(self, *, delay: float | None = None, count: bool = True) -> None:
        """Give the messages back: any consumer of the group gets them again after `delay` seconds,
        or, without `delay`, when the consumer's `retry` says so.

        Without `count` this attempt does not count, and the messages wait only if `delay` is given.
        """
        await self._side.release(self._delivery, delay, count)

    async def reject(self, reason: str = "") -> None:
        """Move the messages to the dead letters of the group and ack them, in one append. It is
        durable on return, and `engine.dead_letters(group)` shows them from then on.
        """
        await self._side.threads.run(self._delivery.reject, reason)

    def __repr__(self) -> str:
        return repr(self._delivery)


class AsyncDelivery(AsyncRange[blocking.Delivery]):
    """One message that was handed to one consumer. `consumer.poll` makes it."""

    __slots__ = ()

    @property
    def message(self) -> Message:
        return self._delivery.message

    @property
    def body(self) -> bytes:
        return self._delivery.body

    @property
    def key(self) -> str | None:
        return self._delivery.key

    @property
    def tag(self) -> str | None:
        return self._delivery.tag

    @property
    def headers(self) -> Mapping[str, str]:
        return self._delivery.headers

    @property
    def message_id(self) -> str | None:
        return self._delivery.message_id

    @property
    def priority(self) -> int | None:
        return self._delivery.priority

    @property
    def expires_at(self) -> datetime | None:
        return self._delivery.expires_at

    @property
    def time(self) -> datetime | None:
        return self._delivery.time


class AsyncDeliveryBatch(AsyncRange[blocking.DeliveryBatch]):
    """Consecutive messages of one queue that are acked together. `consumer.poll_batch` makes it."""

    __slots__ = ()

    @property
    def bodies(self) -> tuple[bytes, ...]:
        return self._delivery.bodies

    @property
    def messages(self) -> list[Message]:
        return self._delivery.messages

    def __len__(self) -> int:
        return len(self._delivery)


class AsyncDeliveries(list[AsyncDelivery]):
    """Deliveries that are acked or given back together. `consumer.batches` makes it."""

    def __init__(self, side: Any, consumer: Any, deliveries: Iterable[AsyncDelivery]) -> None:
        super().__init__(deliveries)
        self._side = side
        self._consumer = consumer  # the blocking consumer

    @property
    def _deliveries(self) -> blocking.Deliveries:
        """Return the deliveries in the list as blocking ones."""
        return blocking.Deliveries(self._consumer, [each._delivery for each in self])

    async def ack(self, *, sync: bool | None = None) -> None:
        """Ack all deliveries that are not settled yet, in one append. Raises LeaseLost, and acks
        none, if one of them was redelivered meanwhile or is in the list twice. A client acks up to
        8,192 ranges of consecutive messages in one append, and more of them in several.
        """
        await self._side.threads.run(self._deliveries.ack, sync=sync)

    async def release(self, *, delay: float | None = None, count: bool = True) -> None:
        """Give back all deliveries that are not settled yet, each as its own `release` does."""
        await self._side.threads.run(self._deliveries.release, delay=delay, count=count)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Ack the deliveries at the end of the block, or give them back if the block raises."""
        if error is None:
            await self.ack()
        else:
            for each in self:
                await each._fail(error)
