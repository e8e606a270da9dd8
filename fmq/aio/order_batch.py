"""Collecting the orders that the coroutines of one loop give in one turn, in their order.

The first order of a turn schedules a callback. It has the orders of the turn written once the loop
has run everything that is ready. Sends of one turn to one queue are joined to one record. While too
many bytes are being written, new orders are held back, in order.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from fmq.aio.call import Call
from fmq.aio.orders import (
    JOINED_BYTES_MAX,
    AioOrder,
    Joined,
    RecordPlace,
    SentCall,
    Target,
    TurnBatch,
    Undo,
)
from fmq.store.journal.commit_queue import PENDING_BYTES_MAX


class Gathering:
    """The orders of one loop that are not being written yet, and how many bytes all orders take."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        make: Callable[[Target, list[bytes], bool | None], Any],
        place_of: Callable[..., RecordPlace],
        carry_out: Callable[[TurnBatch], None],
    ) -> None:
        """`make` and `place_of` are for Joined. `carry_out` gets the orders of each turn, and calls
        `ended` once all of them have their answers.
        """
        self._loop = loop
        self._make = make
        self._place_of = place_of
        self._carry_out = carry_out
        self._orders: list[AioOrder | Joined] = []
        self._joins: dict[tuple[Target, bool | None], Joined] = {}
        self._held_back: deque[Callable[[], None]] = deque()
        self._bytes = 0  # bytes of the orders that are collected or being written
        self._under_way = 0  # number of batches that are being written
        self._is_scheduled = False
        self._on_idle: list[Call] = []

    def send(self, target: Target, body: bytes, sync: bool | None) -> SentCall:
        """Have one body written to its queue."""
        call = SentCall(self._loop, body)
        self.add_send(call, target, sync)
        return call

    def add_send(self, call: SentCall, target: Target, sync: bool | None) -> None:
        """Have the body of `call` written to its queue, joined with other sends of the turn."""
        size = len(call.body)
        if self._held_back or (self._bytes and self._bytes + size > PENDING_BYTES_MAX):
            self._held_back.append(partial(self._join, call, target, sync, size))
        else:
            self._join(call, target, sync, size)

    def _join(self, call: SentCall, target: Target, sync: bool | None, size: int) -> None:
        joined = self._joins.get((target, sync))
        if joined is None or joined.size + size > JOINED_BYTES_MAX:
            self._joins[target, sync] = joined = Joined(self._make, self._place_of, target, sync)
            self._orders.append(joined)
            if not self._is_scheduled:
                self._schedule()
        joined.calls.append(call)
        joined.size += size
        self._bytes += size

    def order(
        self,
        work: Any,
        done: Callable[[Any], Any],
        sync: bool | None = None,
        size: int = 0,
        undo: Undo | None = None,
        *,
        is_apart: bool = False,
    ) -> AioOrder:
        """Have `work` carried out, after everything that was ordered before.

        Work that `is_apart` publishes no message. So sends before it and after it may still be
        joined.
        """
        order = AioOrder(self._loop, work, done, sync, size, undo)
        self.add(order, is_apart)
        return order

    def add(self, order: AioOrder, is_apart: bool = False) -> None:
        """Have an order carried out."""
        size = order.size
        if self._held_back or (self._bytes and self._bytes + size > PENDING_BYTES_MAX):
            self._held_back.append(partial(self._add, order, is_apart))
        else:
            self._add(order, is_apart)

    def _add(self, order: AioOrder, is_apart: bool) -> None:
        if not is_apart:
            self._joins.clear()  # later sends must not be joined with earlier ones
        self._orders.append(order)
        self._bytes += order.size
        if not self._is_scheduled:
            self._schedule()

    def _schedule(self) -> None:
        self._is_scheduled = True
        self._loop.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        self._is_scheduled = False
        orders, self._orders = self._orders, []
        self._joins.clear()
        batch = TurnBatch(orders)
        self._under_way += 1
        if batch.orders:
            self._carry_out(batch)
        else:
            self.ended(batch)

    def ended(self, batch: TurnBatch) -> None:
        """Note that a batch has its answers. Carry out orders that were held back, as far as there
        is room.
        """
        self._under_way -= 1
        self._bytes -= batch.size
        while self._held_back and self._bytes < PENDING_BYTES_MAX:
            self._held_back.popleft()()
        if self._on_idle and self._is_idle:
            for call in self._on_idle:
                call.settle(None)
            self._on_idle.clear()

    @property
    def _is_idle(self) -> bool:
        return not (self._under_way or self._orders or self._held_back)

    async def drain(self) -> None:
        """Wait until all orders have their answers."""
        while not self._is_idle:
            call = Call(self._loop)
            self._on_idle.append(call)
            await call.future
