"""An engine of this process, as the coroutines of one loop use it."""

from __future__ import annotations

from asyncio import AbstractEventLoop, CancelledError
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from threading import Lock
from typing import Any, TypeVar

from fmq.aio.calls import Call
from fmq.aio.orders import AioOrder
from fmq.aio.reading_batches import read_in_batches
from fmq.aio.threads import Threads
from fmq.aio.turn import AioTurn
from fmq.consume.consumer import Consumer
from fmq.consume.delivery import Delivery, DeliveryBatch
from fmq.engine import Engine
from fmq.errors import FmqError
from fmq.message import Body, Message
from fmq.server.waiting import Waiting
from fmq.store.batch import Batch
from fmq.store.content import as_bytes
from fmq.tx.buffer import NO_EXTRAS, TransactionBuffer
from fmq.tx.ledger import Queue
from fmq.tx.names import check_place, check_seconds
from fmq.tx.sender import receipts_of
from fmq.tx.transaction import Transaction

T = TypeVar("T")


class Cold(Exception):
    """What a call asks for may have to be read from the disk, so a thread does that."""


class LocalSide:
    """One engine, on one loop."""

    def __init__(self, engine: Engine, loop: AbstractEventLoop) -> None:
        self.engine = engine
        self.loop = loop
        self._parts = parts = engine._parts
        self._sender, self._queue = parts.sender, parts.commit_queue
        self._writer = parts.writer
        self.threads = Threads(loop)
        self.turn = AioTurn(loop, parts.commit_queue, parts.sender, parts.writer, engine._after)
        self.joining = Lock()  # held by a thread while a consumer joins its group

    routes_late = False

    def check(self) -> None:
        """Raise if the engine is closed or has failed."""
        self.engine._check()

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
        *extras: Any,
    ) -> Call:
        """Begin to send one message. Raises what refuses its arguments."""
        engine = self.engine
        if engine._refusal is not None or self._queue.failure is not None:
            engine._check()
        if sync is not None:
            self._queue.waits(sync)  # or a TypeError
        sender = self._sender
        if key is None and tag is None and not headers and extras == NO_EXTRAS:
            target = sender.target(topic, None, queue, producer)
            if type(body) is not bytes:
                body = as_bytes(body)
            sender.check_size(len(body))
            return self.turn.send(target, body, sync)
        sent = sender.one(topic, body, key, tag, headers, queue, producer, *extras)
        return self.turn.order(
            self._writer.send, sent, lambda: receipts_of(sent.records)[0], sync, sent.size
        )

    def send_many(
        self,
        topic: str,
        bodies: Iterable[Body | Message],
        queue: int | None,
        producer: str | None,
        sync: bool | None,
    ) -> Call | None:
        """Begin to send many messages; return None if there are none."""
        self.engine._check()
        self._queue.waits(sync)  # or a TypeError
        sent = self._sender.many(topic, bodies, queue, producer)
        if sent is None:
            return None
        plan = self._parts.manager.message_ids.planner(sent)
        done = lambda: receipts_of((*sent.records, *sent.left_out))  # noqa: E731
        return self.turn.order(plan, sent, done, sync, sent.size)

    # --- reading --------------------------------------------------------------------------------

    async def read_batch(
        self, topic: str, queue: int, offset: int, limit: int, timeout: float
    ) -> Batch | None:
        """Return messages as one batch, as `Engine.read_batch` does."""
        self.engine._enter()
        queue, offset, limit = check_place(topic, queue, offset, limit)
        timeout = check_seconds("timeout", timeout)
        engine, messages = self.engine, self._parts.messages
        read = partial(engine.read_batch, topic, queue=queue, offset=offset, limit=limit)

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

    async def read(
        self, topic: str, queue: int, offset: int, limit: int, timeout: float
    ) -> list[Message]:
        """Return messages, as `Engine.read` does."""
        return await read_in_batches(self.read_batch, topic, queue, offset, limit, timeout)

    async def _find(
        self,
        look: Callable[[], T | None],
        look_in_thread: Callable[[], T | None],
        timeout: float,
        listen: Callable[[Callable[[], None]], float],
        stop: Callable[[Callable[[], None]], None],
        unwanted: Callable[[T | None], object] = lambda _: None,
    ) -> T | None:
        """Return what `look` finds within `timeout` seconds, or what it finds in a thread if it
        raises Cold. `unwanted` gets what was found for a call that was cancelled.
        """
        clock = self._writer.clock
        deadline = clock.monotonic() + timeout
        while True:
            left = max(0.0, deadline - clock.monotonic())
            try:
                return await self._wait(look, left, listen, stop, unwanted)
            except Cold:
                found = await self.threads.read(look_in_thread, unwanted)
            if found is not None or clock.monotonic() >= deadline:
                return found

    async def _wait(
        self,
        look: Callable[[], T | None],
        timeout: float,
        listen: Callable[[Callable[[], None]], float],
        stop: Callable[[Callable[[], None]], None],
        unwanted: Callable[[T | None], object],
    ) -> T | None:
        found = look()
        if found is not None or timeout <= 0:
            return found
        call = Call(self.loop)
        call.has_begun = True
        clock = self._writer.clock
        waiting: Waiting[T] = Waiting(self.loop, clock, timeout, _never, look, listen, stop)
        try:
            waiting.begin(call.settle)
            result: T | None = await call.future
            return result
        except CancelledError:
            if call.error is None:
                unwanted(call.result)
            raise
        finally:
            waiting.cancel()

    # --- consuming ------------------------------------------------------------------------------

    async def poll(self, consumer: Any, limit: int, timeout: float) -> list[Delivery]:
        """Return up to `limit` deliveries, as `Consumer.poll` does."""

        def look() -> list[Delivery] | None:
            found = consumer._claim(limit, 0.0, partial(_warm, consumer, consumer._read_messages))
            if found is None:
                return None
            claim, pieces = found
            return [Delivery(consumer, claim, each) for piece in pieces for each in piece]

        def in_thread() -> list[Delivery] | None:
            return consumer.poll(limit=limit) or None

        return await self._poll(consumer, look, in_thread, timeout) or []

    async def poll_batch(self, consumer: Any, limit: int, timeout: float) -> DeliveryBatch | None:
        """Return up to `limit` messages of one queue, as `Consumer.poll_batch` does."""

        def look() -> DeliveryBatch | None:
            read = partial(_warm, consumer, consumer._read_batch)
            found = consumer._claim(limit, 0.0, read, in_one_piece=True)
            return None if found is None else DeliveryBatch(consumer, found[0], found[1][0])

        in_thread = partial(consumer.poll_batch, limit=limit)
        return await self._poll(consumer, look, in_thread, timeout)

    async def _poll(
        self,
        consumer: Consumer,
        look: Callable[[], T | None],
        in_thread: Callable[[], T | None],
        timeout: float,
    ) -> T | None:
        timeout = check_seconds("timeout", timeout)
        listen, stop = consumer._listen_for, consumer._stop_listening
        return await self._find(look, in_thread, timeout, listen, stop, _give_back)

    def ack(self, delivery: Any, sync: bool | None) -> Call:
        """Begin to ack a delivery or a batch of them."""
        self._queue.waits(sync)  # or a TypeError
        consumer = delivery._consumer
        acking = consumer._acking(delivery._claim, *delivery._offsets())
        return self.turn.order(consumer._plan_ack, acking, _nothing, sync, is_apart=True)

    async def release(self, delivery: Any) -> None:
        """Give a delivery or a batch of them back."""
        delivery.release()

    async def leave(self, consumer: Any) -> None:
        """Close a consumer."""
        consumer.close()

    # --- transactions ---------------------------------------------------------------------------

    def begin(
        self, tx_id: str | None, producer: str | None, check_after: float | None
    ) -> Transaction:
        """Return a new transaction, whose id is not held yet."""
        return self._parts.manager.begin(tx_id, producer, check_after, takes_id=False)

    async def route(self, transaction: TransactionBuffer) -> None:
        """Do nothing: each message has its queue."""

    def commit(self, transaction: TransactionBuffer, sync: bool | None) -> AioOrder:
        """Begin to commit an open transaction; the answer is how to get its receipts."""
        command = self._parts.manager.committing(transaction)
        return self.turn.order(command.plan, command.what, command.done, sync, command.size)

    def prepare(self, transaction: TransactionBuffer) -> AioOrder:
        """Begin to prepare an open transaction."""
        command = self._parts.manager.preparing(transaction)
        return self.turn.order(command.plan, command.what, command.done, True, command.size)

    async def quickly(self, function: Callable[..., T], *args: Any, **named: Any) -> T:
        """Return what `function` does, which waits for nothing here."""
        return function(*args, **named)

    # --- ending ---------------------------------------------------------------------------------

    async def drain(self) -> None:
        """Wait until all that was ordered is durable."""
        await self.turn.drain()

    def end(self) -> None:
        """Do nothing: the engine needs no loop."""


def _never() -> bool:
    return False


def _nothing() -> None:
    pass


def _warm(
    consumer: Consumer, read: Callable[[Queue, int, int], T], queue: Queue, first: int, count: int
) -> T:
    """Return what `read` returns if that is in memory, else raise Cold."""
    ahead = consumer._ahead.get(queue)
    if ahead is None or not ahead.offset <= first < ahead.next:
        latest = queue.latest
        if latest is None or latest.offset != first:
            raise Cold
    return read(queue, first, count)


def _give_back(found: Any) -> None:
    """Give back what was found for a poll that was cancelled."""
    with suppress(FmqError):  # an engine that is closed holds nothing
        for each in found if isinstance(found, list) else () if found is None else (found,):
            each._consumer._try_give_back(each._claim, *each._offsets())
