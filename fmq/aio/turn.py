"""What the coroutines of one loop write in one turn of it: one plan, one waiter, one sync.

A call adds an order, and the first order of a turn has the turn written once the loop has run what
is ready. Sends of one turn to one queue are joined: they become one record. No task and no executor
of the loop's does any of this, so nothing that cancels tasks ends it.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from threading import get_ident
from typing import Any

from fmq.aio.calls import Call
from fmq.message import Receipt
from fmq.store.commit_queue import PENDING_BYTES_MAX, CommitQueue
from fmq.store.journal import Append
from fmq.tx.sender import Sender
from fmq.tx.writer import Writer

JOINED_BYTES_MAX = 256 << 10  # of a record that several sends share
QUICK_SECONDS = 0.002  # a write that takes longer would hold up the loop
LOOKS_AGAIN = 16  # turns after a slow write before the loop writes by itself again

Failure = Callable[[], BaseException]

made_receipt = partial(tuple.__new__, Receipt)  # of a tuple; Receipt() itself is slower


class AioOrder(Call):
    """A call that writes: what it plans, and what it returns."""

    __slots__ = ("done", "plan", "refusal", "size", "sync", "what")

    def __init__(
        self,
        loop: AbstractEventLoop,
        plan: Callable[[Any], object],
        what: Any,
        done: Callable[[], Any],
        sync: bool | None = None,
        size: int = 0,
    ) -> None:
        """`plan` is called with `what` under the engine's lock, and `done` once that is durable."""
        super().__init__(loop)
        self.plan = plan
        self.what = what
        self.done = done
        self.sync = sync
        self.size = size
        self.refusal: Exception | None = None

    def begin(self) -> bool:
        """Return whether it is to be planned."""
        if self.future.cancelled():
            return False
        self.has_begun = True
        return True

    def answer(self, failed: Failure | None) -> None:
        """Give its caller the answer."""
        error = self.refusal if failed is None else failed()
        result = None
        if error is None:
            try:
                result = self.done()
            except Exception as raised:
                error = raised
        self.settle(result, error)


class SentCall(Call):
    """One message of a record that several sends share."""

    __slots__ = ("body",)

    def __init__(self, loop: AbstractEventLoop, body: bytes) -> None:
        super().__init__(loop)
        self.body = body


class Joined:
    """Sends of one turn to one queue, which become one record."""

    __slots__ = (
        "append",
        "calls",
        "producer",
        "refusal",
        "sender",
        "size",
        "sync",
        "target",
        "writer",
    )

    def __init__(
        self,
        sender: Sender[Append],
        writer: Writer,
        target: tuple[str, int, str],
        sync: bool | None,
    ) -> None:
        self.sender = sender
        self.writer = writer
        self.target = target
        self.sync = sync
        self.calls: list[SentCall] = []
        self.size = 0
        self.refusal: Exception | None = None
        self.append: Append | None = None

    def begin(self) -> bool:
        """Make the record; return whether there is one."""
        calls = self.calls
        for call in calls:
            if call.future.cancelled():
                self.calls = calls = [each for each in calls if not each.future.cancelled()]
                break
        if not calls:
            return False
        for call in calls:
            call.has_begun = True
        self.append = self.sender.joined(*self.target, [call.body for call in calls])
        return True

    @property
    def what(self) -> Append:
        """Return what is planned."""
        assert self.append is not None
        return self.append

    @property
    def plan(self) -> Callable[[Append], object]:
        """Return what plans it."""
        return self.writer.send

    def answer(self, failed: Failure | None) -> None:
        """Give each caller its receipt, or the error."""
        refusal = self.refusal
        if failed is not None or refusal is not None:
            for call in self.calls:
                call.settle(None, refusal if failed is None else failed())
            return
        run = self.what.records[-1]
        topic, queue, offset, position = run.topic, run.queue, run.offset, run.position
        for number, call in enumerate(self.calls, offset):
            receipt = made_receipt((topic, queue, number, position, 1))
            call.is_settled = True
            call.result = receipt
            if not call.future.done():
                call.future.set_result(receipt)


class TurnBatch:
    """What one turn writes."""

    __slots__ = ("failure", "orders", "size")

    def __init__(self, orders: list[AioOrder | Joined]) -> None:
        self.orders = orders
        self.size = sum([order.size for order in orders])
        self.failure: BaseException | None = None


class AioTurn:
    """Collects what the coroutines of one loop write, and has it written together."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        commit_queue: CommitQueue,
        sender: Sender[Append],
        writer: Writer,
        after: Callable[[], None],
    ) -> None:
        """`after` is called once after each write."""
        self._loop = loop
        self._thread = get_ident()
        self._commit_queue = commit_queue
        self._sender = sender
        self._writer = writer
        self._after = after
        self._orders: list[AioOrder | Joined] = []
        self._joins: dict[tuple[tuple[str, int, str], bool | None], Joined] = {}
        self._held_back: deque[Callable[[], int]] = deque()
        self._bytes = 0  # that are collected or planned, and not durable yet
        self._is_scheduled = False
        self._writing: TurnBatch | None = None  # by this thread, now
        self._slow_turns = 0  # for how many more the committer writes
        self.on_idle: Callable[[], None] | None = None
        self._under_way = 0

    # --- adding ---------------------------------------------------------------------------------

    def send(self, target: tuple[str, int, str], body: bytes, sync: bool | None) -> SentCall:
        """Have one body written to its queue."""
        call = SentCall(self._loop, body)
        size = len(body)
        if self._held_back or (self._bytes and self._bytes + size > PENDING_BYTES_MAX):
            self._held_back.append(partial(self._join, call, target, sync, size))
        else:
            self._join(call, target, sync, size)
        return call

    def _join(
        self, call: SentCall, target: tuple[str, int, str], sync: bool | None, size: int
    ) -> int:
        joined = self._joins.get((target, sync))
        if joined is None or joined.size + size > JOINED_BYTES_MAX:
            self._joins[target, sync] = joined = Joined(self._sender, self._writer, target, sync)
            self._orders.append(joined)
            if not self._is_scheduled:
                self._schedule()
        joined.calls.append(call)
        joined.size += size
        self._bytes += size
        return size

    def order(
        self,
        plan: Callable[[Any], object],
        what: Any,
        done: Callable[[], Any],
        sync: bool | None = None,
        size: int = 0,
    ) -> AioOrder:
        """Have what `plan` plans of `what` written, after all that was ordered before."""
        order = AioOrder(self._loop, plan, what, done, sync, size)
        if self._held_back or (self._bytes and self._bytes + size > PENDING_BYTES_MAX):
            self._held_back.append(partial(self._add, order))
        else:
            self._add(order)
        return order

    def _add(self, order: AioOrder) -> int:
        self._joins.clear()  # what is sent from now on comes after it
        self._orders.append(order)
        self._bytes += order.size
        if not self._is_scheduled:
            self._schedule()
        return order.size

    def _schedule(self) -> None:
        self._is_scheduled = True
        self._loop.call_soon(self.write)

    # --- writing --------------------------------------------------------------------------------

    def write(self) -> None:
        """Write what was ordered."""
        self._is_scheduled = False
        orders, self._orders = self._orders, []
        self._joins.clear()
        batch = TurnBatch(orders)
        batch.orders = [order for order in orders if order.begin()]
        if not batch.orders:
            self._end(batch)
            return
        syncs = {order.sync for order in batch.orders}
        if not any(map(self._commit_queue.waits, syncs)):
            self._write_without_waiting(batch)
            return
        sync = True if True in syncs else None
        queue = self._commit_queue
        here = queue.committer is None or not self._slow_turns
        if self._slow_turns:
            self._slow_turns -= 1
        self._writing = batch if here else None
        begun = self._loop.time()
        self._under_way += 1
        try:
            queue.submit(self._plan, batch.orders, partial(self._written, batch), sync, here=here)
        except BaseException as error:
            self._writing = None
            self._fail(batch, error)
            if not isinstance(error, Exception):
                raise
            return
        if here and self._writing is None:
            if self._loop.time() - begun > QUICK_SECONDS:
                self._slow_turns = LOOKS_AGAIN
            self._served(batch)
        self._writing = None

    def _write_without_waiting(self, batch: TurnBatch) -> None:
        self._under_way += 1
        try:
            self._commit_queue.run(self._plan, batch.orders, False)
        except BaseException as error:
            self._fail(batch, error)
            if not isinstance(error, Exception):
                raise
            return
        self._served(batch)

    def _plan(self, orders: list[AioOrder | Joined]) -> None:
        """Plan each order, and note its refusal. Under the lock."""
        refusal_of = self._commit_queue.changing.refusal_of
        for order in orders:
            order.refusal = refusal_of(partial(order.plan, order.what))

    def _written(self, batch: TurnBatch, failure: BaseException | None) -> None:
        """Note that a batch is durable, or has failed. By any thread, under the engine's lock."""
        batch.failure = failure
        if self._writing is batch and get_ident() == self._thread:
            self._writing = None
            return
        with suppress(RuntimeError):  # the loop is closed: no coroutine waits any more
            self._loop.call_soon_threadsafe(self._served, batch)

    def _served(self, batch: TurnBatch) -> None:
        if batch.failure is None:
            for order in batch.orders:
                order.answer(None)
            self._under_way -= 1
            self._end(batch)
            self._after()
        else:
            self._fail(batch, batch.failure)

    def _fail(self, batch: TurnBatch, error: BaseException) -> None:
        """Give all callers of a batch the error: the engine has failed, or is closed."""
        # An error each: one that several tasks raise would collect their tracebacks.
        queue = self._commit_queue
        make = queue.failed_error if queue.broken() else lambda: error
        for order in batch.orders:
            order.answer(make)
        self._under_way -= 1
        self._end(batch)

    def _end(self, batch: TurnBatch) -> None:
        """Let in what was held back, as far as there is room now."""
        self._bytes -= batch.size
        while self._held_back and self._bytes < PENDING_BYTES_MAX:
            self._held_back.popleft()()
        if self.on_idle is not None and not self._under_way and not self._orders:
            self.on_idle()

    @property
    def is_idle(self) -> bool:
        """Return whether nothing is collected or on its way."""
        return not (self._under_way or self._orders or self._held_back)
