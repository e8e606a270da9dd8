"""The calls of an engine. A face checks their arguments, and its door carries them out.

`AsyncAnyEngine` has those that look, and `AsyncWritingEngine` all. What their docstrings promise
holds for an engine of this process, for one of another process and on a loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from types import TracebackType
from typing import Any, Self, TypeVar, overload

from fmq.aio.face.door import AsyncEngineDoor, AsyncJoiningFace, AsyncLookingDoor
from fmq.aio.face.handles import AsyncDeadLetters, AsyncGroup, AsyncTopic
from fmq.aio.feedback import AsyncFeedback
from fmq.aio.loop_transaction import AsyncTransaction
from fmq.allocation import Strategy
from fmq.arguments.names import (
    check_count,
    check_marks,
    check_place,
    check_seconds,
    check_text,
    check_texts,
    check_time,
)
from fmq.arguments.options import Options
from fmq.assembly.stats import Stats
from fmq.basics.clock import as_us
from fmq.basics.message import Body, Decision, DelayedReceipt, Mark, Message, Receipt
from fmq.basics.results import GroupInfo, Outcome, QueueInfo, Settled, UndecidedTransaction
from fmq.bind.on_loop import AsyncBoundTransaction
from fmq.consume.claims.backoff import Retry
from fmq.consume.claims.membership import COUNT, RAISE, OnChange
from fmq.consume.groups.administration import At
from fmq.consume.groups.sieve import text_of
from fmq.faces.steps import found_messages, unread_messages
from fmq.filters import Filter
from fmq.store.reading.batch import Batch
from fmq.tx.commands.due import timing_of
from fmq.tx.looks.find import check_find

M = TypeVar("M")
C = TypeVar("C", bound=Callable[..., Any])


class AsyncAnyEngine:
    """What each engine shows: that of `fmq.open`, of `fmq.connect`, and one that only reads."""

    _door: AsyncLookingDoor

    # --- reading --------------------------------------------------------------------------------

    async def read(
        self, topic: str, *, queue: int = 0, offset: int = 0, limit: int = 100, timeout: float = 0.0
    ) -> list[Message]:
        """Return the messages of `queue` from `offset`, at most `limit`; wait `timeout` seconds.

        Raises Damaged or Unreadable if one of them is; `read_batch` returns those before it.
        """
        self._door.check_open()
        queue, offset, limit = check_place(topic, queue, offset, limit, 0)
        timeout = check_seconds("timeout", timeout)
        found: list[Message] = []
        while len(found) < limit:
            wait, left = 0.0 if found else timeout, limit - len(found)
            batch = await self._door.read_batch(topic, queue, offset + len(found), left, wait)
            if batch is None:
                break
            found += batch.messages
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
        """Return the same as one Batch, which has the bodies; None if there are no messages.

        It may have fewer than `limit` although there are more. Go on from `batch.next`.
        """
        queue, offset, limit = check_place(topic, queue, offset, limit)
        wait = check_seconds("timeout", timeout)
        return await self._door.read_batch(topic, queue, offset, limit, wait)

    async def find(self, topic: str, *, key: str, limit: int = 100) -> list[Message]:
        """Return up to `limit` messages of `topic` with this key, the newest first.

        It reads the marks of keys, which the first call makes for each full segment, the heads of
        what is newer, and what it finds. Raises Damaged or Unreadable if it meets that.
        """
        return await self._door.run(found_messages, *check_find(topic, key, limit))

    async def unread(self, group: str, topic: str, *, limit: int = 100) -> list[Message]:
        """Return messages that `group` has not acked, at most `limit`, the oldest first. Nothing is
        taken: another member may have them in hand. Those that a filter will pass over are there
        too, until a poll has come to them.
        """
        limit = check_count("limit", limit)
        return await self._door.run(unread_messages, *check_texts(group, topic), limit)

    async def delayed(self, topic: str | None = None, *, limit: int = 100) -> list[DelayedReceipt]:
        """Return the receipts of up to `limit` records that wait, of all topics or of one, in the
        order in which they are due.

        It reads their heads until it has enough of the topic.
        """
        if topic is not None:
            check_text("topic", topic)
        return await self._door.look("delayed", topic, check_count("limit", limit))

    # --- transactions ---------------------------------------------------------------------------

    async def outcome(self, tx_id: str) -> Outcome:
        """Return whether a transaction is undecided, committed or rolled back, and why."""
        return await self._door.look("outcome", tx_id)

    async def undecided(self) -> list[UndecidedTransaction]:
        """Return the sealed transactions that wait for their decision, the oldest first."""
        return await self._door.look("undecided")

    async def mark(self, name: str) -> Mark | None:
        """Return the mark that a committed transaction has set under `name`; None without one."""
        return await self._door.look("mark", check_text("mark", name))

    async def marks(self, *names: str, prefix: str | None = None) -> dict[str, Mark]:
        """Return those of the marks `names` that are set, and all whose name begins with `prefix`,
        as they are at one instant.
        """
        return await self._door.look("marks", *check_marks(names, prefix))

    # --- topics and groups ----------------------------------------------------------------------

    async def queues(self, topic: str | None = None) -> list[QueueInfo]:
        """Return all queues, or those of one topic, with their offsets at this instant."""
        if topic is not None:
            check_text("topic", topic)
        return await self._door.look("queues", topic)

    async def groups(self, group: str | None = None) -> list[GroupInfo]:
        """Return how far each group is, or one group, in each queue it has taken from."""
        if group is not None:
            check_text("group", group)
        return await self._door.look("groups", group)

    async def offset_at(self, topic: str, queue: int, time: datetime) -> int:
        """Return the offset of the first message of a queue that was sent at `time` or later; the
        next one to be given if there is none.
        """
        queue, _, _ = check_place(topic, queue, 0, 1)
        return await self._door.look("offset_at", topic, queue, as_us(check_time("time", time)))

    async def topic(self, name: str) -> AsyncTopic:
        """Return a topic, to look at it or to change it; raise UnknownTopic."""
        await self._door.look("check_topic", check_text("topic", name))
        return AsyncTopic(self._door, name)

    async def group(self, name: str) -> AsyncGroup:
        """Return a group, to look at it, or to move or delete it; raise UnknownGroup."""
        await self._door.look("check_group", check_text("group", name))
        return AsyncGroup(self._door, name)

    async def dead_letters(self, group: str) -> AsyncDeadLetters:
        """Return the dead letters of a group; raise UnknownGroup."""
        await self._door.look("check_group", check_text("group", group))
        return AsyncDeadLetters(self._door, group)

    # --- the engine itself ----------------------------------------------------------------------

    @property
    def path(self) -> str:
        return self._door.path

    @property
    def options(self) -> Options:
        """Return a copy of the options that the engine was opened with."""
        return replace(self._door.options)

    async def stats(self) -> Stats:
        """Return a snapshot of the engine."""
        return await self._door.stats()

    async def close(self) -> None:
        """Wait for running calls, write a checkpoint, release the directory.

        What is undecided stays undecided. Raises StorageError if the machine refuses to close a
        file. Then everything else is closed, and a second call does nothing. A client closes its
        connection, and what its consumers hold is redelivered.
        """
        await self._door.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()


class AsyncWritingEngine(AsyncAnyEngine):
    """What engines do that write: those of `fmq.open` and of `fmq.connect`."""

    _door: AsyncEngineDoor

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

        With `sync=False` it becomes both with the next sync of any call, or at a normal end of the
        process. With `sync=True` it is durable on return, whatever the options say. All that the
        coroutines of a loop send in one of its turns shares one sync.

        With `delay`, in seconds, or `deliver_at` it is visible from then on, and has an offset only
        then. Its receipt is a DelayedReceipt, which `recall` takes.
        """
        return await self._door.send(
            topic,
            body,
            key,
            tag,
            headers,
            queue,
            producer,
            message_id,
            priority,
            expires_at,
            delay,
            deliver_at,
            sync,
        )

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
        """Append bodies or Messages, all or none of them. Return one receipt for each record.

        A record holds at most 65,536 messages of one queue. More of them take several records of
        one append, and one sync makes them durable and visible. `delay` and `deliver_at` are as in
        `send`, for all of them; `recall` ends the wait of a record as a whole.
        """
        return await self._door.send_many(topic, bodies, queue, producer, delay, deliver_at, sync)

    async def recall(self, receipt: Receipt) -> bool:
        """Take back messages that wait for their time; return whether that came in time.

        If so, they never appear. If not, they were published, or recalled before.
        """
        timing = timing_of(receipt)
        return timing is not None and await self._door.change("recall", timing)

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

        No checker is asked about it for `check_after` seconds after prepare. With `bind`, a
        connection to the user's database, the block begins and ends the database's transaction as
        well: both commit, or neither does. A connection of asyncio needs `async with`. On a loop a
        `tx_id` is claimed when the block begins, at `await`, or by the first step.
        """
        return self._door.begin(tx_id, producer, check_after, bind)

    async def decide(
        self,
        tx_id: str,
        decision: Decision,
        *,
        reason: str | None = None,
        decided_by: str | None = None,
        seal: str | None = None,
    ) -> Outcome:
        """Commit or roll back an undecided transaction, in its producer's place.

        The same decision again succeeds; the opposite one raises AlreadyDecided. With `seal` only
        a transaction that has this seal is decided.
        """
        why, by = "" if reason is None else reason, "" if decided_by is None else decided_by
        named = {"reason": why, "decided_by": by, "seal": seal}
        return await self._door.change("decide", tx_id, decision, **named)

    @property
    def feedback(self) -> AsyncFeedback:
        """Return the feedback service, where producers take questions and answer them."""
        return self._door.feedback

    def checker(self, producer: str) -> Callable[[C], C]:
        """Register the decorated function as a checker for the transactions of `producer`.

        It takes a Question and returns "commit", "rollback" or "unknown". A thread of this process
        calls it, about what any process has prepared; one that is a coroutine function runs on the
        loop that registers it.
        """
        return self._door.checker(producer)

    async def settle(self, *, timeout: float = 30.0) -> Settled:
        """Ask the registered checkers about all that is undecided now. Return what came of it."""
        return await self._door.settle(check_seconds("timeout", timeout))

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

        `local` takes the transaction and returns "commit", "rollback" or "unknown", which None also
        means. If it raises, the checker is asked later. On a loop a thread calls it, unless it is a
        coroutine function.
        """
        return await self._door.send_with(messages, local, tx_id, producer, check_after)

    # --- topics and groups ----------------------------------------------------------------------

    def consumer(
        self: AsyncJoiningFace[M],
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
    ) -> M:
        """Return a member of `group`, which shares the messages of `topics`. On a loop it joins the
        group when its `async with` block begins, or at its first poll.

        A new group begins with the oldest messages, and has the `filter` of its first consumer;
        then FilterDiffers is raised for another one. Members compete for messages, or `strategy`
        shares the queues among those who read them: a name of `fmq.allocation`, or a function,
        which another process cannot call.
        `on_change` is then called with the queues that were lost and gained, as pairs of topic and
        number, in a poll. With `ordered` the messages of each key come in their order: the next one
        when those before it are acked, or together with them; the strategy is "sticky" if none is
        named. A consumer that gives the name of another `member` takes its place. A
        `strict` one is in no group with others that read other topics. With `broadcast` it gets
        every message from now on, whatever others get, and leaves nothing behind when it goes.
        `retry` says how often a message is tried, and how long it waits after a failed attempt.
        `expired` messages are passed over: they "count", or each becomes a "dead_letter", too.
        At a `damaged` message a poll "raise"s, or it "skip"s all of that record, as `group.skip`
        does, with a warning in the log.
        """
        return self._door.join(
            topics,
            group,
            lease_seconds,
            member,
            strategy,
            None if filter is None else text_of(filter),
            ordered=ordered,
            strict=strict,
            on_change=on_change,
            broadcast=broadcast,
            retry=retry,
            expired=expired,
            damaged=damaged,
        )

    async def create_topic(
        self, name: str, *, queues: int | None = None, retain_seconds: float | None = None
    ) -> AsyncTopic:
        """Make a topic before its first message, once: else TopicExists is raised.

        What is None is as the options say.
        """
        await self._door.change("make_topic", name, queues, retain_seconds)
        return AsyncTopic(self._door, name)

    async def create_group(
        self, name: str, topic: str, *, at: At = "earliest", filter: Filter | None = None
    ) -> None:
        """Make a group of `topic` before its first consumer, once: else GroupExists is raised.

        It begins at the "earliest" message, the "latest" one, an offset, or a time (a datetime).
        """
        await self._door.change("make_group", name, topic, at, text_of(filter))

    # --- the engine itself ----------------------------------------------------------------------

    async def sync(self) -> None:
        """Make everything sent so far durable, whatever the sync mode."""
        await self._door.change("sync")

    async def checkpoint(self) -> None:
        """Write a checkpoint, from which recovery can start. Chores write them, too."""
        await self._door.change("checkpoint")
