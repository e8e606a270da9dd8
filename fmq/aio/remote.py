"""An engine of another process, as the coroutines of one loop use it.

Frequent calls go from the loop to the socket and back: sends, commits, polls, reads and acks. Other
calls are made by a thread over the same connection. The loop reads the answers of all.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, CancelledError
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from itertools import count
from threading import Lock
from typing import Any, TypeVar

from fmq.aio.call import Call, end_of, written
from fmq.aio.face.transaction import AsyncTransaction
from fmq.aio.late_router import LateRouter, choose_now, unknown_topics
from fmq.aio.link_reader import LoopReader
from fmq.aio.link_writer import Asking
from fmq.aio.loop_manager import LoopManager
from fmq.aio.orders import AioOrder, SentCall, Undo
from fmq.aio.threads import Threads
from fmq.arguments.names import waits
from fmq.basics.message import Body, Message, MessagePlace
from fmq.consume.claims.delivery import DeliveryBatch
from fmq.consume.claims.handed import range_of
from fmq.errors import FmqError
from fmq.remote.link_door import LinkDoor
from fmq.remote.remote_claims import ClaimedBatch, RemoteClaim
from fmq.remote.remote_consumer import RemoteMember
from fmq.store.bytes.content import as_bytes, listed
from fmq.store.bytes.kinds import PRE_MESSAGE, TX_MESSAGE, Kind
from fmq.store.reading.batch import Batch
from fmq.tx.commands.buffer import TransactionBuffer
from fmq.tx.commands.due import check_due
from fmq.tx.commands.sender import SendArguments, is_plain
from fmq.wire.batches import decode_batch
from fmq.wire.claims import AckAsked, encode_ack
from fmq.wire.frames import Op
from fmq.wire.sends import decode_sent, encode_send
from fmq.wire.values import decode_places, decode_values, encode_values

T = TypeVar("T")
# How long a cancelled poll waits until the engine process has taken its messages back.
GIVE_BACK_SECONDS = 1.0


class RemoteSide:
    """Calls an engine in another process from an asyncio loop, without a thread for each call."""

    def __init__(self, door: LinkDoor, loop: AbstractEventLoop, threads: Threads) -> None:
        self.door = door
        self.loop = loop
        self.clock = door.clock
        self._link, self._sender, self._topics = door.link, door.sender, door.topics
        self.threads = threads
        self._reader = LoopReader(self._link, loop, threads)
        self._asking = Asking(loop, self._link, self._reader, self._sender, threads)
        self._router: Any = LateRouter(door.router)
        self._manager = LoopManager(self, door.manager)
        # Held by a thread while a consumer joins its group.
        self.joining = Lock()
        self._names = count(1)  # numbers for requests that may be cancelled
        self._lookups: dict[str, list[tuple[Call, Callable[[], None]]]] = {}
        door.manager.keeper.in_thread = threads.soon
        self._reader.begin()

    routes_late = True

    def check(self) -> None:
        """Raise if the client is closed."""
        self._link.check()

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
        self._link.check()
        if sync is not None:
            waits(sync, by_default=True)  # raises TypeError for a wrong `sync`
        sender = self._sender
        if is_plain(how) and delay is None and deliver_at is None:
            body = as_bytes(body)
            sender.check_size(len(body))
            sent = SentCall(self.loop, body)
            self._when_known(
                topic,
                sent,
                lambda: self._asking.add_send(
                    sent, sender.target(topic, None, how.queue, how.producer), sync
                ),
            )
            return sent
        timing = check_due(delay, deliver_at, self.door.clock.time_us(), relative=True)
        make = partial(sender.one, topic, body, *how, timing)
        return self._send(topic, make, sync, lambda receipts: receipts[0])

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
        self._link.check()
        waits(sync, by_default=True)  # raises TypeError for a wrong `sync`
        items: Any = listed(bodies)
        if not items:
            self._router.check_target(topic, queue)
            return None
        timing = check_due(delay, deliver_at, self.door.clock.time_us(), relative=True)
        make = partial(self._sender.many, topic, items, queue, producer, timing)
        return self._send(topic, make, sync, lambda receipts: receipts)

    def _send(
        self,
        topic: str,
        make: Callable[[], Any],
        sync: bool | None,
        done: Callable[[list[Any]], Any],
    ) -> AioOrder:
        order = AioOrder(self.loop, None, lambda answer: done(decode_sent(topic, answer)), sync)

        def begin() -> None:
            runs = make()
            order.work = Op.SEND, encode_send, (sync, runs), 0
            order.size = sum([run.raw_bytes for run in runs])
            self._asking.add(order)

        self._when_known(topic, order, begin)
        return order

    def _when_known(self, topic: str, call: Call, begin: Callable[[], None]) -> None:
        """Call `begin` once the number of the topic's queues is known. Calls keep their order."""
        if not isinstance(topic, str):
            self._router.check_target(topic, None)  # raises TypeError: the topic is no text
        waiting = self._lookups.get(topic)
        if waiting is None and self._topics.get(topic) is not None:
            begin()
            return
        self._router.choose_queue(topic, None, None)  # raises if the topic may not be sent to
        if waiting is not None:
            waiting.append((call, begin))
            return
        self._lookups[topic] = [(call, begin)]
        self._look_up(topic, self._begin_waiting)

    def _look_up(self, topic: str, then: Callable[[str, BaseException | None], None]) -> None:
        """Ask how many queues a topic has. Then call `then` with the topic, and the error if there
        is one.
        """
        said = encode_values(["queues_of", [topic], {}])

        def done(answer: bytes) -> None:
            self._topics.note(topic, decode_values(answer))
            then(topic, None)

        def undo(error: BaseException | None) -> None:
            then(topic, error)

        self._ask(Op.CALL, said, done, undo=undo)

    def _begin_waiting(self, topic: str, error: BaseException | None) -> None:
        for call, begin in self._lookups.pop(topic):
            if call.future.cancelled():
                continue
            try:
                if error is not None:
                    raise error
                begin()
            except Exception as refusal:
                call.settle(None, refusal)

    def _ask(
        self,
        op: Op,
        payload: bytes,
        done: Callable[[bytes], Any],
        *,
        handle: int = 0,
        undo: Undo | None = None,
        patience: float = 0.0,
    ) -> AioOrder:
        """Send a request that may be repeated without harm. Its answer may take `patience`
        seconds.
        """
        order = AioOrder(self.loop, (op, _encoded, (payload,), handle), done, None, 0, undo)
        order.patience = patience
        self._asking.ask(order)
        return order

    # --- reading --------------------------------------------------------------------------------

    async def read_batch(
        self, topic: str, queue: int, offset: int, limit: int, timeout: float
    ) -> Batch | None:
        """Return messages as one batch, as `Engine.read_batch` does."""
        self._link.check()
        name = next(self._names)
        said = encode_values([topic, queue, offset, limit, timeout, name])
        call = self._ask(Op.READ, said, _batch_of, patience=timeout)
        return await self._waited(call, name, lambda _: None)  # type: ignore[no-any-return]

    async def wait(self, places: Sequence[MessagePlace], timeout: float) -> list[MessagePlace]:
        """Return the places whose queues have messages, as `LinkDoor.wait` does."""
        self._link.check()
        name = next(self._names)
        said = encode_values([[[*each] for each in places], timeout, name])
        call = self._ask(Op.WAIT, said, decode_places, patience=timeout)
        return await self._waited(call, name, lambda _: None)  # type: ignore[no-any-return]

    async def _waited(self, call: AioOrder, name: int, unwanted: Callable[[Any], None]) -> Any:
        """Return the answer to a request that may wait for long. If the call is cancelled, the
        answer goes to `unwanted`.
        """
        try:
            return await call.future
        except CancelledError:
            if call.has_begun:
                if not call.is_settled:
                    self._ask(Op.CANCEL, encode_values([name]), _nothing).ignore()
                    await self._settled(call)
                if call.is_settled:
                    if call.error is None:
                        unwanted(call.result)
                else:  # the answer to the request will come, and goes to `unwanted`
                    done = call.done
                    call.done = lambda answer: unwanted(done(answer))
            raise

    async def _settled(self, call: Call) -> None:
        """Wait for an answer for a short time, even if the task is cancelled."""
        deadline = self.loop.time() + GIVE_BACK_SECONDS
        while not call.is_settled and (left := deadline - self.loop.time()) > 0:
            call.future = self.loop.create_future()
            timer = self.loop.call_later(left, call.future.cancel)
            with suppress(CancelledError, Exception):
                await call.future
            timer.cancel()

    # --- consuming ------------------------------------------------------------------------------

    async def poll(
        self, member: RemoteMember, limit: int, timeout: float, *, as_batch: bool = False
    ) -> tuple[list[ClaimedBatch]] | None:
        """Return what a poll of `member` has claimed; None if nothing comes within its timeout."""
        member.begin()
        while True:
            name = next(self._names)
            said = encode_values([limit, timeout, as_batch, name])
            how: Any = {"handle": member.handle, "patience": timeout}
            call = self._ask(Op.POLL, said, member.answered, **how)
            found = await self._waited(call, name, partial(self._give_back, member))
            if found is not None:
                return (found,)

    async def take(
        self, member: RemoteMember, limit: int, timeout: float, sync: bool | None
    ) -> list[Message]:
        """Return up to `limit` messages of one queue and ack them."""
        found: list[Message] = await self.threads.run(member.take_now, limit, sync)
        if found or timeout <= 0:
            return found
        later = await self.poll(member, limit, timeout, as_batch=True)
        batch = later and member.delivery_batch(DeliveryBatch, member, *later)
        if not batch:
            return []
        call = self.ack(member, *range_of(batch), sync)
        try:
            await call.future
        except CancelledError as cancelled:
            await end_of(call, cancelled, written)
        return batch.messages

    def _give_back(self, member: RemoteMember, found: list[ClaimedBatch] | None) -> None:
        for claim, batch in found or ():
            said = encode_values(
                [claim.number, batch.offset, batch.next, 0.0, False, claim.attempt]
            )
            member.done(claim, batch.offset, batch.next)
            self._ask(Op.RELEASE, said, _nothing, handle=member.handle).ignore()

    def ack(
        self, member: RemoteMember, claim: RemoteClaim, first: int, end: int, sync: bool | None
    ) -> Call:
        """Begin to ack a range."""
        member.check()
        member.spend(claim, first, end)
        asked = AckAsked(claim.number, first, end, sync, *claim.queue)
        done = partial(self._acked, member, claim, first, end)
        undo = partial(member.unspend, claim, first, end)
        work = Op.ACK, _encoded, (encode_ack(asked),), member.handle
        return self._asking.order(work, done, sync, 0, undo, is_apart=True)

    def _acked(
        self, member: RemoteMember, claim: RemoteClaim, first: int, end: int, answer: bytes
    ) -> None:
        member.done(claim, first, end)

    async def shortly(self, function: Callable[[], object]) -> None:
        """Call `function`, which asks the engine process, in a thread."""
        await self.threads.run(function)

    # --- transactions ---------------------------------------------------------------------------

    def begin(
        self, tx_id: str | None, producer: str | None, check_after: float | None
    ) -> AsyncTransaction:
        """Return a new transaction. Its id is not held yet."""
        names = tx_id, producer, check_after
        buffer = self.door.manager.buffer_for(*names, takes_id=False, router=self._router)
        return AsyncTransaction(self._manager, buffer)

    def commit(self, transaction: TransactionBuffer, sync: bool | None) -> AioOrder:
        """Begin to commit a transaction. The answer of the order is a function that makes its
        receipts.
        """
        return self._write(Op.COMMIT, TX_MESSAGE, transaction, sync)

    def prepare(self, transaction: TransactionBuffer) -> AioOrder:
        """Begin to prepare an open transaction."""
        return self._write(Op.PREPARE, PRE_MESSAGE, transaction, True)

    def _write(
        self, op: Op, kind: Kind, transaction: TransactionBuffer, sync: bool | None
    ) -> AioOrder:
        encode, done = self.door.manager.request(kind, transaction, sync)
        return self._asking.order((op, encode, (), 0), done, sync, transaction.size)

    async def route(self, transaction: TransactionBuffer) -> None:
        """Choose the queues of messages that have none yet, before the transaction is written."""
        while unknown := [t for t in unknown_topics(transaction) if self._topics.get(t) is None]:
            call = Call(self.loop)

            def then(topic: str, error: BaseException | None, call: Call = call) -> None:
                call.settle(None, error)

            self._look_up(unknown[0], then)
            await call.future
        if unknown_topics(transaction):
            choose_now(transaction, self.door.router)

    async def quickly(self, function: Callable[..., T], *args: Any, **named: Any) -> T:
        """Return what `function` returns. A thread calls the function, because it may ask the
        engine process.
        """
        return await self.threads.run(function, *args, **named)

    # --- ending ---------------------------------------------------------------------------------

    async def drain(self) -> None:
        """Wait until all orders have their answers."""
        while self._lookups:
            call = Call(self.loop)
            next(iter(self._lookups.values())).append((call, partial(call.settle, None)))
            with suppress(FmqError):
                await call.future
        await self._asking.drain()

    def end(self) -> None:
        """Stop reading the connection."""
        self._reader.end()


def _encoded(sequence: int, waiting: int, payload: bytes) -> tuple[bytes]:
    return (payload,)


def _batch_of(answer: bytes) -> Batch | None:
    return decode_batch(answer) if answer else None


def _nothing(*_: object) -> None:
    pass
