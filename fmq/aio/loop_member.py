"""A member of a group for the coroutines of one loop.

It has a blocking member, which has joined the group. Threads call it, or the turns of the loop.
"""

from __future__ import annotations

from asyncio import CancelledError, current_task
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from fmq.aio.call import end_of, written
from fmq.aio.face.delivery import AsyncDelivery, AsyncDeliveryBatch
from fmq.basics.message import Message
from fmq.consume.calls.in_hand import Draining
from fmq.consume.calls.lookahead import Lookahead
from fmq.consume.claims.handed import HandedRange, OwnedRange, range_of
from fmq.consume.claims.membership import Joining
from fmq.errors import Closed


class LoopMember:
    """A member that joins its group at its first call, or in the block of its consumer."""

    loop_seconds = 60.0

    def __init__(self, side: Any, join: Callable[[Joining], Any], asked: Joining) -> None:
        """A thread calls `join`, which joins the group and returns the blocking member."""
        self._side = side
        self._join = join
        self._asked = asked
        self._joined: Any = None
        self.topics, self.named, self.name = asked.entry.topics, asked.group, asked.entry.name
        self.retry, self.lease_seconds = asked.entry.retry, asked.lease_seconds
        self.is_ordered = asked.entry.is_ordered
        self.is_closed = False
        # What each `for` loop over the consumer has polled ahead.
        self.aheads: set[Lookahead[AsyncDelivery]] = set()
        self.draining = Draining(side.clock)
        self.monotonic: Callable[[], float] = side.loop.time

    def caller(self) -> object:
        """Return the task that calls."""
        return current_task()

    # --- joining --------------------------------------------------------------------------------

    @property
    def blocking(self) -> Any:
        """The blocking member; None before it has joined the group."""
        return self._joined

    async def join(self) -> Any:
        """Join the group, if that was put off until now. Return the blocking member."""
        if self._joined is None:
            if self.is_closed:
                raise Closed("the consumer is closed; make another one with engine.consumer(...)")
            await self._side.threads.run(self._join_once)
        return self._joined

    def _join_once(self) -> None:
        with self._side.joining:
            if self._joined is None:
                joined = self._join(self._asked)
                joined.draining, joined.aheads = self.draining, self.aheads
                self._joined = joined

    def check(self) -> None:
        """Raise if the consumer or its engine is closed."""
        if self._joined is not None:
            self._joined.check()

    async def close(self, *, counts: bool) -> None:
        """Leave the group. Without `counts`, attempts of messages in hand do not count."""
        self.is_closed = True
        if self._joined is not None:
            await self._side.shortly(partial(self._joined.close, counts=counts))

    # --- what it takes --------------------------------------------------------------------------

    async def poll(self, limit: int, timeout: float) -> list[AsyncDelivery]:
        """Return deliveries; none if none comes within `timeout` seconds, or while draining."""
        member = self._joined or await self.join()
        found = await self._side.poll(member, limit, timeout)
        return member.deliveries(AsyncDelivery, self, *found) if found else []

    async def poll_batch(self, limit: int, timeout: float) -> AsyncDeliveryBatch | None:
        """Return messages of one queue; None if none comes within `timeout` seconds, or if the
        member drains.
        """
        member = self._joined or await self.join()
        found = await self._side.poll(member, limit, timeout, as_batch=True)
        return member.delivery_batch(AsyncDeliveryBatch, self, *found) if found else None

    async def take(self, limit: int, timeout: float, sync: bool | None) -> list[Message]:
        """Return messages of one queue and ack them. `sync` says whether the ack is synced."""
        found: list[Message] = await self._side.take(await self.join(), limit, timeout, sync)
        return found

    async def count_members(self) -> int:
        """Return how many members the group has."""
        found: int = await self._side.quickly(self._joined.count_members)
        return found

    async def drain(self, timeout: float) -> bool:
        """Take nothing new. Wait up to `timeout` seconds, and return whether nothing is in hand."""
        patience = self.draining.patience(current_task(), timeout)
        member = await self.join()
        found: bool = await self._side.threads.long(member.drain, patience)
        return found

    # --- what becomes of it ---------------------------------------------------------------------

    async def ack(self, claim: Any, first: int, end: int, sync: bool | None) -> None:
        """Ack the messages from `first` up to `end`. Raises LeaseLost."""
        call = self._side.ack(self._joined, claim, first, end, sync)
        try:
            await call.future
        except CancelledError as cancelled:
            await end_of(call, cancelled, written)

    async def ack_all(self, ranges: list[OwnedRange[Any]], sync: bool | None) -> None:
        """Ack all of `ranges`, or none of them if that raises LeaseLost."""
        await self._side.threads.run(self._joined.ack_all, ranges, sync)

    async def extend(self, claim: Any, first: int, end: int, seconds: float) -> None:
        """Let the lease of these messages end `seconds` from now. Raises LeaseLost."""
        await self._side.quickly(self._joined.extend, claim, first, end, seconds)

    async def give_back(
        self, claim: Any, first: int, end: int, delay: float, *, count: bool
    ) -> None:
        """Redeliver these messages after `delay` seconds. With `count` this attempt counts. Raises
        LeaseLost.
        """
        give_back = partial(self._joined.give_back, claim, first, end, delay, count=count)
        await self._side.shortly(give_back)

    async def give_back_unseen(self, deliveries: Iterable[HandedRange]) -> None:
        """Redeliver deliveries that a `for` loop has polled and its program has not seen. Raises
        nothing.
        """
        if deliveries:
            await self._side.threads.run(self._joined.give_back_unseen, deliveries)

    async def reject(self, claim: Any, first: int, end: int, reason: str) -> None:
        """Move these messages to the dead letters of the group. Raises LeaseLost."""
        await self._side.threads.run(self._joined.reject, claim, first, end, reason)

    def keep(self, delivery: AsyncDelivery) -> None:
        """Begin to extend the lease of `delivery`, which is being handled. Raises nothing."""
        extend = partial(self._joined.extend, *range_of(delivery), self.lease_seconds)
        self._side.threads.soon(extend)
