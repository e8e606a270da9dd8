"""An engine of this process, as the coroutines of one loop use it."""

from __future__ import annotations

from asyncio import AbstractEventLoop, CancelledError
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from functools import partial
from threading import Lock
from typing import Any, TypeVar

from fmq.aio.call import Call, end_of, written
from fmq.aio.loop_turn import AioTurn
from fmq.aio.orders import PLAIN, AioOrder
from fmq.aio.polls import Polls
from fmq.aio.threads import Threads
from fmq.basics.message import Body, Message
from fmq.consume.calls.thread_member import ThreadMember
from fmq.consume.claims.claim import Claim
from fmq.consume.claims.poll import Poll, Taken
from fmq.engines.thread_door import ThreadDoor
from fmq.errors import FmqError
from fmq.server.waiting_call import DAY, Waiting
from fmq.store.bytes.content import as_bytes
from fmq.store.bytes.encoding import measured
from fmq.store.bytes.kinds import Run
from fmq.store.reading.batch import Batch
from fmq.tx.commands.buffer import TransactionBuffer
from fmq.tx.commands.due import check_due
from fmq.tx.commands.sender import receipt_of, receipts_of
from fmq.tx.commands.transaction import Transaction

T = TypeVar("T")


class Cold(Exception):
    """Raised if messages may have to be read from the disk. A thread has to do that."""


class LocalSide:
    """The calls of an engine of this process that a loop makes without a thread."""

    def __init__(self, door: ThreadDoor, loop: AbstractEventLoop, threads: Threads) -> None:
        self.door = door
        self.loop = loop
        self._parts = parts = door.parts
        self._sender, self._queue = parts.sender, parts.commit_queue
        self.threads = threads
        self.turn = AioTurn(loop, parts.commit_queue, parts.sender, parts.writer, door.after)
        self.clock = clock = parts.writer.clock
        self._polls = Polls(loop, parts.commit_queue, self.turn, threads, clock.monotonic)
        # Held by a thread while a consumer joins its group.
        self.joining = Lock()

    routes_late = False

    def check(self) -> None:
        """Raise if the engine is closed or has failed."""
        self.door.check()

    # --- sending --------------------------------------------------------------------------------

    def send(
        self,
        topic: str,
        body: Body,
        key: str | None,
        tag: str | None,
        headers: Mapping[str, str] | None,
        queue: int | None,
        producer: str | None,
        sync: bool | None,
        *carried: Any,
    ) -> Call:
        """Begin to send one message. Raises the errors of its arguments."""
        if self.door.refusal is not None or self._queue.failure is not None:
            self.door.check()
        if sync is not None:
            self._queue.waits(sync)  # raises TypeError for a wrong `sync`
        sender = self._sender
        if key is None and tag is None and not headers and carried == PLAIN:
            target = sender.target(topic, None, queue, producer)
            if type(body) is not bytes:
                body = as_bytes(body)
            sender.check_size(len(body))
            return self.turn.send(target, body, sync)
        message_id, priority, expires_at, delay, deliver_at = carried
        timing = check_due(delay, deliver_at, self.clock.time_us())
        what = topic, body, key, tag, headers, queue, producer
        sent = sender.one(*what, message_id, priority, expires_at, timing)
        return self._order(sent, lambda: receipt_of(sent[-1]), sync)

    def _order(self, sent: list[Run], done: Callable[[], Any], sync: bool | None) -> Call:
        """Order the append of `sent`. `done` makes what the call returns."""
        self._parts.delays.check(sent)
        plan = self._parts.manager.message_ids.planner(sent)
        return self.turn.order(plan, sent, done, sync, measured(sent))

    def send_many(
        self,
        topic: str,
        bodies: Iterable[Body | Message],
        queue: int | None,
        producer: str | None,
        delay: float | None,
        deliver_at: datetime | None,
        sync: bool | None,
    ) -> Call | None:
        """Begin to send many messages. Return None if there are none."""
        self.door.check()
        self._queue.waits(sync)  # raises TypeError for a wrong `sync`
        timing = check_due(delay, deliver_at, self.clock.time_us())
        sent = self._sender.many(topic, bodies, queue, producer, timing)
        return self._order(sent, lambda: receipts_of(sent), sync) if sent else None

    # --- reading --------------------------------------------------------------------------------

    async def read_batch(
        self, topic: str, queue: int, offset: int, limit: int, timeout: float
    ) -> Batch | None:
        """Return messages as one batch, as `Engine.read_batch` does."""
        self.door.check_open()
        messages = self._parts.messages
        read = partial(self.door.read_batch, topic, queue, offset, limit, 0.0)

        def look() -> Batch | None:
            found = messages.ledger.queue(topic, queue)
            if found is not None and offset < found.next:
                latest = found.latest
                if latest is None or latest.offset != offset:
                    raise Cold
            return read()

        def listen(notify: Callable[[], None]) -> float:
            with self._parts.lock:
                messages.listen((topic,), notify)
            return float("inf")

        def stop(notify: Callable[[], None]) -> None:
            messages.stop_listening(notify, (topic,))

        return await self._find(look, read, timeout, listen, stop)

    async def _find(
        self,
        look: Callable[[], T | None],
        look_in_thread: Callable[[], T | None],
        timeout: float,
        listen: Callable[[Callable[[], None]], float],
        stop: Callable[[Callable[[], None]], None],
    ) -> T | None:
        """Return what `look` finds within `timeout` seconds. If it raises Cold, let a thread call
        `look_in_thread` instead.
        """
        clock = self.clock
        deadline = clock.monotonic() + timeout
        while True:
            left = max(0.0, deadline - clock.monotonic())
            try:
                return await self._wait(look, left, listen, stop)
            except Cold:
                found = await self._look_in_thread(look_in_thread, deadline, listen, stop)
            if found is not None or clock.monotonic() >= deadline:
                return found

    async def _look_in_thread(
        self,
        look: Callable[[], T | None],
        deadline: float,
        listen: Callable[[Callable[[], None]], float],
        stop: Callable[[Callable[[], None]], None],
    ) -> T | None:
        """Let a thread call `look`. If it finds nothing, wait until a new look may find
        something.
        """
        clock, call = self.clock, Call(self.loop)
        if clock.monotonic() >= deadline:
            return await self.threads.read(look)
        call.has_begun = True

        def notify() -> None:
            with suppress(RuntimeError):  # the loop is closed: no coroutine waits any more
                self.loop.call_soon_threadsafe(call.settle, None, None)

        # Listen before the look, so that no message is missed.
        until = min(deadline, listen(notify))
        try:
            found = await self.threads.read(look)
            left = until - clock.monotonic()
            if found is None and left > 0:
                timer = self.loop.call_later(min(left, DAY), call.settle, None, None)
                try:
                    await call.future
                finally:
                    timer.cancel()
            return found
        finally:
            stop(notify)

    async def _wait(
        self,
        look: Callable[[], T | None],
        timeout: float,
        listen: Callable[[Callable[[], None]], float],
        stop: Callable[[Callable[[], None]], None],
    ) -> T | None:
        found = look()
        if found is not None or timeout <= 0:
            return found
        call = Call(self.loop)
        call.has_begun = True
        clock = self.clock
        waiting: Waiting[T] = Waiting(self.loop, clock, timeout, _never, look, listen, stop)
        try:
            waiting.begin(call.settle)
            result: T | None = await call.future
            return result
        finally:
            waiting.cancel()

    # --- consuming ------------------------------------------------------------------------------

    async def poll(
        self, member: ThreadMember, limit: int, timeout: float, *, as_batch: bool = False
    ) -> Taken:
        """Return what a poll of `member` has claimed; None if nothing comes within its timeout."""
        how = {"as_batch": as_batch, "in_one_piece": as_batch, "listens": False}
        return await self._polls.find(member, Poll(self.clock, limit, timeout, counts=True, **how))

    async def take(
        self, member: ThreadMember, limit: int, timeout: float, sync: bool | None
    ) -> list[Message]:
        """Return up to `limit` messages of one queue and ack them."""
        how = {"as_batch": True, "in_one_piece": True, "listens": False}
        found = await self._polls.find(member, Poll(self.clock, limit, timeout, **how))
        if found is None:
            return []
        claim, (batch,) = found
        try:
            messages: list[Message] = member.burying.shown_of(batch) or batch.messages
            call = self.ack(member, claim, batch.offset, batch.next, sync)
            try:
                await call.future
            except CancelledError as cancelled:
                await end_of(call, cancelled, written)
        except BaseException:
            # The program has not seen the messages. If their ack was written, nothing is held any
            # more.
            with suppress(FmqError):
                member.try_give_back(claim, batch.offset, batch.next)
            raise
        return messages

    def ack(
        self, member: ThreadMember, claim: Claim, first: int, end: int, sync: bool | None
    ) -> Call:
        """Begin to ack a range."""
        acking = member.acking(claim, first, end)
        done = member.draining.changed
        return self.turn.order(member.plan_ack, acking, done, sync, is_apart=True)

    async def shortly(self, function: Callable[[], object]) -> None:
        """Call `function`, which may wait for another thread: then in a thread."""
        if self._queue.is_led:
            await self.threads.run(function)
        else:
            function()

    # --- transactions ---------------------------------------------------------------------------

    def begin(
        self, tx_id: str | None, producer: str | None, check_after: float | None
    ) -> Transaction:
        """Return a new transaction. Its id is not held yet."""
        return self._parts.manager.begin(tx_id, producer, check_after, takes_id=False)

    async def route(self, transaction: TransactionBuffer) -> None:
        """Do nothing: each message has its queue."""

    def commit(self, transaction: TransactionBuffer, sync: bool | None) -> AioOrder:
        """Begin to commit a transaction. The answer of the order is a function that makes its
        receipts.
        """
        return self.turn.late(self._parts.manager.committing, transaction, sync, transaction.size)

    def prepare(self, transaction: TransactionBuffer) -> AioOrder:
        """Begin to prepare an open transaction."""
        return self.turn.late(self._parts.manager.preparing, transaction, True, transaction.size)

    async def quickly(self, function: Callable[..., T], *args: Any, **named: Any) -> T:
        """Return what `function` returns. Here it does not have to wait for another process."""
        return function(*args, **named)

    # --- ending ---------------------------------------------------------------------------------

    async def drain(self) -> None:
        """Wait until all orders are durable."""
        await self.turn.drain()

    def end(self) -> None:
        """Do nothing: a local engine needs nothing of the loop."""


def _never() -> bool:
    return False
