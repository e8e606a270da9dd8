"""An engine whose calls are awaited, in this process or in another one."""

from __future__ import annotations

import asyncio
from asyncio import CancelledError
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import partial
from inspect import iscoroutinefunction
from types import TracebackType
from typing import Any, TypeVar, overload
from weakref import WeakSet

from fmq.aio.calls import end_of, written
from fmq.aio.consumer import AsyncConsumer
from fmq.aio.handles import AsyncDeadLetters, AsyncFeedback, AsyncGroup, AsyncTopic
from fmq.aio.local import LocalSide
from fmq.aio.remote import RemoteSide
from fmq.aio.threads import Threads
from fmq.aio.transaction import AsyncTransaction
from fmq.allocation import Strategy
from fmq.bind.on_loop import AsyncBoundTransaction
from fmq.consume.backoff import Retry
from fmq.consume.changing import At
from fmq.consume.membership import COUNT, RAISE, OnChange, check_member, check_membership
from fmq.errors import WrongState
from fmq.filters import Filter
from fmq.message import Body, Decision, DelayedReceipt, Mark, Message, Receipt
from fmq.options import Options
from fmq.posix import after_fork_in_child
from fmq.processes import new_member
from fmq.remote.remote_engine import RemoteEngine
from fmq.remote.unconnected import UnconnectedEngine
from fmq.results import GroupInfo, Outcome, QueueInfo, Settled, UndecidedTransaction
from fmq.server.serving import Serving
from fmq.stats import Stats
from fmq.store.batch import Batch

C = TypeVar("C", bound=Callable[..., Any])


class AsyncEngine:
    """A directory, as the coroutines of one loop use it. Made by `fmq.aio.open`, `connect`, `of`.

    Once its loop has closed, the next loop may use it, so an object of a module serves each
    `asyncio.run` in turn. Loops that run at the same time each have a face of their own:
    `fmq.aio.of`.
    """

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self._is_met = not isinstance(engine, UnconnectedEngine)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._made: Any = None

    @property
    def _side(self) -> Any:
        """Return the engine as the running loop uses it."""
        if asyncio.get_running_loop() is not self._loop:
            self._meet(asyncio.get_running_loop())
        return self._made

    def _meet(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._loop is not None and not self._loop.is_closed():
            raise WrongState(
                "this object belongs to another event loop, which is not closed. Nothing was "
                "changed; fmq.aio.of(...) gives each loop its own, of the same engine."
            )
        is_remote = isinstance(self._engine, RemoteEngine)
        self._made = (RemoteSide if is_remote else LocalSide)(self._engine, loop, Threads(loop))
        self._loop = loop
        _faces.add(self)

    async def _met(self) -> Any:
        """Return the same as `_side`. First connect, in a thread, if that was put off."""
        if not self._is_met:
            threads = Threads(asyncio.get_running_loop())
            await threads.long(self._engine._begin)
            self._is_met = True
        return self._side

    async def _run(self, call: Callable[[Any], Any]) -> Any:
        """Return what `call` does with the engine, in a thread."""
        side = await self._met()
        return await side.threads.run(call, self._engine)

    def _forked(self) -> None:
        """Forget the loop, in the child of a fork."""
        self._loop = self._made = None

    # --- sending --------------------------------------------------------------------------------

    async def send(
        self,
        topic: str,
        body: Body,
        *,
        key: str | None = None,
        tag: str | None = None,
        headers: Mapping[str, str] | None = None,
        queue: int | None = None,
        producer: str | None = None,
        message_id: str | None = None,
        priority: int | None = None,
        expires_at: datetime | None = None,
        delay: float | None = None,
        deliver_at: datetime | None = None,
        sync: bool | None = None,
    ) -> Receipt:
        """Append one message. It is durable and visible on return.

        All that the coroutines of a loop send in one of its turns shares one sync.
        """
        side = self._side if self._is_met else await self._met()
        carried = message_id, priority, expires_at, delay, deliver_at
        call = side.send(topic, body, key, tag, headers, queue, producer, sync, *carried)
        try:
            return await call.future  # type: ignore[no-any-return]
        except CancelledError as cancelled:
            await end_of(call, cancelled, written)
            raise

    async def send_many(
        self,
        topic: str,
        bodies: Iterable[Body | Message],
        *,
        queue: int | None = None,
        producer: str | None = None,
        delay: float | None = None,
        deliver_at: datetime | None = None,
        sync: bool | None = None,
    ) -> list[Receipt]:
        """Append bodies or Messages, all or none of them. Return one receipt for each record."""
        side = self._side if self._is_met else await self._met()
        call = side.send_many(topic, bodies, queue, producer, delay, deliver_at, sync)
        if call is None:
            return []
        try:
            return await call.future  # type: ignore[no-any-return]
        except CancelledError as cancelled:
            await end_of(call, cancelled, written)
            raise

    async def recall(self, receipt: Receipt) -> bool:
        """Take back messages that wait for their time; return whether that came in time."""
        found: bool = await self._run(lambda engine: engine.recall(receipt))
        return found

    async def delayed(self, topic: str | None = None, *, limit: int = 100) -> list[DelayedReceipt]:
        """Return the receipts of up to `limit` records that wait, in the order of their times."""
        found: list[DelayedReceipt] = await self._run(
            lambda engine: engine.delayed(topic, limit=limit)
        )
        return found

    # --- transactions ---------------------------------------------------------------------------

    @overload
    def transaction(
        self,
        *,
        tx_id: str | None = None,
        producer: str | None = None,
        check_after: float | None = None,
        bind: None = None,
    ) -> AsyncTransaction: ...

    @overload
    def transaction(
        self,
        *,
        tx_id: str | None = None,
        producer: str | None = None,
        check_after: float | None = None,
        bind: Any,
    ) -> AsyncBoundTransaction: ...

    def transaction(
        self,
        *,
        tx_id: str | None = None,
        producer: str | None = None,
        check_after: float | None = None,
        bind: Any = None,
    ) -> AsyncTransaction | AsyncBoundTransaction:
        """Return a new transaction over any topics. As an `async with` block it commits at its end.

        With `bind`, a connection of asyncio to the user's database, both commit, or neither does. A
        `tx_id` is claimed when the block begins, at `await`, or by the first step.
        """
        side = self._side
        side.check()
        if bind is not None:
            bound: AsyncBoundTransaction = self._engine.transaction(
                tx_id=tx_id, producer=producer, check_after=check_after, bind=bind
            )
            return bound
        tx = side.begin(tx_id, producer, check_after)
        return AsyncTransaction(side, tx, takes_id=tx_id is not None)

    async def outcome(self, tx_id: str) -> Outcome:
        """Return whether a transaction is undecided, committed or rolled back, and why."""
        found: Outcome = await self._run(lambda engine: engine.outcome(tx_id))
        return found

    async def undecided(self) -> list[UndecidedTransaction]:
        """Return the sealed transactions that wait for their decision, the oldest first."""
        found: list[UndecidedTransaction] = await self._run(lambda engine: engine.undecided())
        return found

    async def decide(
        self,
        tx_id: str,
        decision: Decision,
        *,
        reason: str | None = None,
        decided_by: str | None = None,
        seal: str | None = None,
    ) -> Outcome:
        """Commit or roll back an undecided transaction in place of its producer."""
        named = {"reason": reason, "decided_by": decided_by, "seal": seal}
        found: Outcome = await self._run(lambda engine: engine.decide(tx_id, decision, **named))
        return found

    @property
    def feedback(self) -> AsyncFeedback:
        """Return the feedback service, where producers take questions and answer them."""
        return AsyncFeedback(self._side, self._engine.feedback)

    def checker(self, producer: str) -> Callable[[C], C]:
        """Register the decorated function as a checker for the transactions of `producer`.

        It takes a Question and returns "commit", "rollback" or "unknown". A thread calls it; one
        that is a coroutine function runs on this loop.
        """
        loop, register = self._side.loop, self._engine.checker(producer)

        def registered(check: C) -> C:
            register(_on_loop(loop, check) if iscoroutinefunction(check) else check)
            return check

        return registered

    async def settle(self, *, timeout: float = 30.0) -> Settled:
        """Ask the registered checkers about all transactions that are undecided now. Return the
        results.
        """
        side = await self._met()
        found: Settled = await side.threads.long(self._engine.settle, timeout=timeout)
        return found

    async def send_in_transaction(
        self,
        messages: Iterable[tuple[str, Body | Message]],
        local: Callable[..., Any],
        *,
        producer: str | None = None,
        tx_id: str | None = None,
        check_after: float | None = None,
    ) -> Outcome:
        """Prepare `messages`, pairs of topic and body, call `local`, and decide as it answers.

        `local` returns "commit", "rollback" or "unknown". A thread calls it; one that is a
        coroutine function runs on this loop. If it raises, the checker is asked later.
        """
        side = await self._met()
        call = _on_loop(side.loop, local) if iscoroutinefunction(local) else local
        names = {"producer": producer, "tx_id": tx_id, "check_after": check_after}
        send = partial(self._engine.send_in_transaction, messages, call, **names)
        found: Outcome = await side.threads.long(send)
        return found

    # --- reading --------------------------------------------------------------------------------

    async def read(
        self, topic: str, *, queue: int = 0, offset: int = 0, limit: int = 100, timeout: float = 0.0
    ) -> list[Message]:
        """Return the messages of `queue` from `offset`, at most `limit`; wait `timeout` seconds."""
        side = await self._met()
        found: list[Message] = await side.read(topic, queue, offset, limit, timeout)
        return found

    async def read_batch(
        self,
        topic: str,
        *,
        queue: int = 0,
        offset: int = 0,
        limit: int = 1000,
        timeout: float = 0.0,
    ) -> Batch | None:
        """Return the same as one Batch, which has the bodies; None if there are no messages."""
        side = await self._met()
        found: Batch | None = await side.read_batch(topic, queue, offset, limit, timeout)
        return found

    async def find(self, topic: str, *, key: str, limit: int = 100) -> list[Message]:
        """Return up to `limit` messages of `topic` with this key, the newest first."""
        found: list[Message] = await self._run(
            lambda engine: engine.find(topic, key=key, limit=limit)
        )
        return found

    def consumer(
        self,
        topics: str | Iterable[str],
        *,
        group: str,
        lease_seconds: float | None = None,
        member: str | None = None,
        strategy: str | Strategy | None = None,
        ordered: bool = False,
        strict: bool = False,
        on_change: OnChange | None = None,
        filter: Filter | None = None,
        broadcast: bool = False,
        retry: Retry | None = None,
        expired: str = COUNT,
        damaged: str = RAISE,
    ) -> AsyncConsumer:
        """Return a member of `group`, which shares the messages of `topics`.

        It joins the group when its `async with` block begins, or at its first poll.
        """
        side, engine = self._side, self._engine
        side.check()
        names, group, lease = check_membership(topics, group, lease_seconds, engine.options)
        name = new_member() if member is None else member
        how: dict[str, Any] = {"ordered": ordered, "strict": strict, "is_told": False}
        how |= {"retry": retry, "expired": expired, "damaged": damaged}
        check_member(name, names, strategy, **how)
        join = partial(
            engine.consumer,
            names,
            group=group,
            lease_seconds=lease,
            member=name,
            strategy=strategy,
            ordered=ordered,
            strict=strict,
            on_change=on_change,
            filter=filter,
            broadcast=broadcast,
            retry=retry,
            expired=expired,
            damaged=damaged,
        )
        return AsyncConsumer(side, join, names, group, name)

    # --- topics and groups ----------------------------------------------------------------------

    async def create_topic(
        self, name: str, *, queues: int | None = None, retain_seconds: float | None = None
    ) -> AsyncTopic:
        """Make a topic before its first message. Raises TopicExists if it is there."""
        named = {"queues": queues, "retain_seconds": retain_seconds}
        topic = await self._run(lambda engine: engine.create_topic(name, **named))
        return AsyncTopic(self._side, topic)

    async def topic(self, name: str) -> AsyncTopic:
        """Return a topic, to look at it or to change it; raise UnknownTopic."""
        topic = await self._run(lambda engine: engine.topic(name))
        return AsyncTopic(self._side, topic)

    async def create_group(
        self, name: str, topic: str, *, at: At = "earliest", filter: Filter | None = None
    ) -> None:
        """Make a group of `topic` before its first consumer. Raises GroupExists if it is there."""
        await self._run(lambda engine: engine.create_group(name, topic, at=at, filter=filter))

    async def group(self, name: str) -> AsyncGroup:
        """Return a group, to look at it, or to move or delete it; raise UnknownGroup."""
        group = await self._run(lambda engine: engine.group(name))
        return AsyncGroup(self._side, group)

    async def dead_letters(self, group: str) -> AsyncDeadLetters:
        """Return the dead letters of a group, to look at them, replay or purge them; raise
        UnknownGroup.
        """
        letters = await self._run(lambda engine: engine.dead_letters(group))
        return AsyncDeadLetters(self._side, letters)

    async def offset_at(self, topic: str, queue: int, time: datetime) -> int:
        """Return the offset of the first message of a queue that was sent at `time` or later."""
        found: int = await self._run(lambda engine: engine.offset_at(topic, queue, time))
        return found

    async def mark(self, name: str) -> Mark | None:
        """Return the mark that a committed transaction has set under `name`; None without one."""
        found: Mark | None = await self._run(lambda engine: engine.mark(name))
        return found

    async def marks(self, *names: str, prefix: str | None = None) -> dict[str, Mark]:
        """Return those of the marks `names` that are set, and all whose name begins with `prefix`,
        as they are at one instant.
        """
        found: dict[str, Mark] = await self._run(lambda engine: engine.marks(*names, prefix=prefix))
        return found

    async def unread(self, group: str, topic: str, *, limit: int = 100) -> list[Message]:
        """Return messages that `group` has not acked, at most `limit`, the oldest first. Nothing is
        taken: another member may have them in hand. Those that a filter will pass over are there
        too, until a poll has come to them.
        """
        found: list[Message] = await self._run(
            lambda engine: engine.unread(group, topic, limit=limit)
        )
        return found

    async def queues(self, topic: str | None = None) -> list[QueueInfo]:
        """Return all queues, or those of one topic, with their offsets at this instant."""
        found: list[QueueInfo] = await self._run(lambda engine: engine.queues(topic))
        return found

    async def groups(self, group: str | None = None) -> list[GroupInfo]:
        """Return how far each group is, or one group, in each queue it has taken from."""
        found: list[GroupInfo] = await self._run(lambda engine: engine.groups(group))
        return found

    # --- the engine itself ----------------------------------------------------------------------

    @property
    def path(self) -> str:
        found: str = self._engine.path
        return found

    @property
    def options(self) -> Options:
        """Return a copy of the options that the engine was opened with."""
        found: Options = self._engine.options
        return found

    async def sync(self) -> None:
        """Make everything sent so far durable, in any sync mode."""
        await self._run(lambda engine: engine.sync())

    async def checkpoint(self) -> None:
        """Write a checkpoint, from which recovery can start."""
        await self._run(lambda engine: engine.checkpoint())

    async def serve(
        self,
        *,
        tcp: str | None = None,
        token_file: str | None = None,
        tls_cert: str | None = None,
        tls_key: str | None = None,
        sockets: Iterable[Any] = (),
    ) -> Serving:
        """Let other processes use the directory, by `fmq.connect`, until what this returns, or the
        engine, is closed. A thread serves them.
        """
        named = {"tcp": tcp, "token_file": token_file, "tls_cert": tls_cert, "tls_key": tls_key}
        found: Serving = await self._run(lambda engine: engine.serve(**named, sockets=sockets))
        return found

    async def stats(self) -> Stats:
        """Return a snapshot of the engine."""
        found: Stats = await self._run(lambda engine: engine.stats())
        return found

    async def close(self) -> None:
        """Wait for what is on its way, and close the engine. Calls that wait get Closed."""
        if not self._is_met:
            self._engine.close()
            return
        side = self._side
        await side.drain()
        side.end()
        await side.threads.long(self._engine.close)
        side.threads.stop()

    async def __aenter__(self) -> AsyncEngine:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<fmq.aio of {self._engine!r}>"


_faces: WeakSet[AsyncEngine] = WeakSet()


def _after_fork() -> None:
    for face in [*_faces]:
        face._forked()


after_fork_in_child(_after_fork)


def _on_loop(loop: asyncio.AbstractEventLoop, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function for threads that runs a coroutine function on `loop`."""

    def call(*args: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(function(*args), loop).result()

    return call
