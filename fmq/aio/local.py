"""An engine of this process, as the coroutines of one loop use it."""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from threading import Lock
from typing import Any, TypeVar

from fmq.aio.call import Call
from fmq.aio.driver import LoopDriver
from fmq.aio.face.transaction import AsyncTransaction
from fmq.aio.loop_manager import LoopManager
from fmq.aio.loop_turn import AioTurn
from fmq.aio.orders import AioOrder
from fmq.aio.threads import Threads
from fmq.basics.message import Body, Message, MessagePlace
from fmq.consume.calls.take import take_for_good
from fmq.consume.calls.thread_member import ThreadMember
from fmq.consume.claims.claim import Claim
from fmq.consume.claims.poll import Poll, Taken
from fmq.engines.thread_door import ThreadDoor
from fmq.store.bytes.content import as_bytes
from fmq.store.bytes.encoding import measured
from fmq.store.bytes.kinds import Run
from fmq.store.reading.batch import Batch
from fmq.tx.commands.buffer import TransactionBuffer
from fmq.tx.commands.due import check_due
from fmq.tx.commands.sender import SendArguments, is_plain
from fmq.tx.looks.receipts import receipt_of, receipts_of

T = TypeVar("T")


class LocalSide:
    """The calls that a loop makes, without a thread, to an engine of its own process."""

    def __init__(self, door: ThreadDoor, loop: AbstractEventLoop, threads: Threads) -> None:
        self.door = door
        self.loop = loop
        self._parts = parts = door.parts
        self._sender, self._queue = parts.sender, parts.commit_queue
        self.threads = threads
        self.turn = AioTurn(loop, parts.commit_queue, parts.sender, parts.writer, door.after)
        self.clock = clock = parts.writer.clock
        self._driver = LoopDriver(loop, parts.commit_queue, self.turn, threads, clock.monotonic)
        self._manager = LoopManager(self, parts.manager)
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
        how: SendArguments,
        delay: float | None,
        deliver_at: datetime | None,
        sync: bool | None,
    ) -> Call:
        """Begin to send one message. Raises the errors of its arguments."""
        if self.door.refusal is not None or self._queue.failure is not None:
            self.door.check()
        if sync is not None:
            self._queue.waits(sync)  # raises TypeError for a wrong `sync`
        sender = self._sender
        if is_plain(how) and delay is None and deliver_at is None:
            target = sender.target(topic, None, how.queue, how.producer)
            if type(body) is not bytes:
                body = as_bytes(body)
            sender.check_size(len(body))
            return self.turn.send(target, body, sync)
        timing = check_due(delay, deliver_at, self.clock.time_us())
        sent = sender.one(topic, body, *how, timing)
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
        return await self._driver.drive(self.door.reading(topic, queue, offset, limit, timeout))

    async def wait(self, places: Sequence[MessagePlace], timeout: float) -> list[MessagePlace]:
        """Return the places whose queues have messages, as `ThreadDoor.wait` does."""
        return await self._driver.drive(self.door.waiting(places, timeout))

    # --- consuming ------------------------------------------------------------------------------

    async def poll(
        self, member: ThreadMember, limit: int, timeout: float, *, as_batch: bool = False
    ) -> Taken:
        """Return what a poll of `member` has claimed; None if nothing comes within its timeout."""
        how = {"as_batch": as_batch, "in_one_piece": as_batch, "listens": False}
        poll = Poll(self.clock, limit, timeout, counts=True, **how)
        return await self._driver.drive(member.taking(poll))

    async def take(
        self, member: ThreadMember, limit: int, timeout: float, sync: bool | None
    ) -> list[Message]:
        """Return up to `limit` messages of one queue and ack them."""
        how = {"as_batch": True, "in_one_piece": True, "listens": False}
        poll = Poll(self.clock, limit, timeout, **how)
        return await self._driver.drive(take_for_good(member, poll, sync)) or []

    def ack(
        self, member: ThreadMember, claim: Claim, first: int, end: int, sync: bool | None
    ) -> Call:
        """Begin to ack a range."""
        acking = member.acking(claim, first, end)
        done = member.draining.changed
        return self.turn.order(member.plan_ack, acking, done, sync, is_apart=True)

    async def shortly(self, function: Callable[[], object]) -> None:
        """Call `function`. If it would have to wait for another thread, call it in a thread."""
        if self._queue.is_led:
            await self.threads.run(function)
        else:
            function()

    # --- transactions ---------------------------------------------------------------------------

    def begin(
        self, tx_id: str | None, producer: str | None, check_after: float | None
    ) -> AsyncTransaction:
        """Return a new transaction. Its id is not held yet."""
        buffer_for = self._parts.manager.buffer_for
        buffer = buffer_for(tx_id, producer, check_after, takes_id=False)
        return AsyncTransaction(self._manager, buffer)

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
