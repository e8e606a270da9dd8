"""The calls of an engine. A face checks their arguments, and its door carries them out.

`AsyncAnyEngine` has the calls that look, `AsyncWritingEngine` has all. Their docstrings hold for an
engine of this process and for one of another process, on a loop or not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from types import TracebackType
from typing import Any, Self, TypeVar, cast, overload

from fmq.aio.face.door import AsyncEngineDoor, AsyncJoiningFace, AsyncLookingDoor
from fmq.aio.face.handles import AsyncDeadLetters, AsyncGroup, AsyncSchedule, AsyncTopic
from fmq.aio.face.transaction import AsyncTransaction
from fmq.aio.face.typed_topic import AsyncTypedTopic
from fmq.aio.feedback import AsyncFeedback
from fmq.allocation import Strategy
from fmq.arguments.names import (
    check_count,
    check_erased,
    check_flag,
    check_marks,
    check_names,
    check_place,
    check_places,
    check_seconds,
    check_text,
    check_texts,
    check_time,
)
from fmq.arguments.options import Options
from fmq.arguments.path import PathLike, check_local
from fmq.arguments.path import text_of as path_text
from fmq.arguments.stored_options import Setting, all_named, check_configured
from fmq.assembly.stats import Stats
from fmq.basics.clock import as_us
from fmq.basics.message import Appended, Body, Decision, DelayedReceipt, Mark, Message, Receipt
from fmq.basics.own_process import caller
from fmq.basics.results import (
    ClientInfo,
    Erased,
    GroupInfo,
    Outcome,
    QueueInfo,
    ScheduleInfo,
    Settled,
    UndecidedTransaction,
)
from fmq.bind.on_loop import AsyncBoundTransaction
from fmq.codecs import Codec
from fmq.codecs.agreement import described
from fmq.codecs.codec import check_codec
from fmq.consume.administration.change_plans import At
from fmq.consume.claims.backoff import Retry
from fmq.consume.claims.membership import COUNT, RAISE, OnChange, check_joining
from fmq.consume.groups.sieve import text_of
from fmq.copies import Backup, Progress
from fmq.faces.steps import appended, found_messages, unread_messages
from fmq.filters import Filter
from fmq.store.reading.batch import Batch
from fmq.tx.commands.due import timing_of
from fmq.tx.commands.joint_decisions import MarkMove, PlainDecision, check_ids
from fmq.tx.commands.sender import made_send_arguments
from fmq.tx.looks.find import check_find
from fmq.tx.schedules.schedules import check_schedule

M = TypeVar("M")
T = TypeVar("T")
C = TypeVar("C", bound=Callable[..., Any])


class AsyncAnyEngine:
    """The calls of every engine: of `fmq.open`, of `fmq.connect`, and of an engine that
    only reads.
    """

    _door: AsyncLookingDoor

    # --- reading --------------------------------------------------------------------------------

    async def read(
        self, topic: str, *, queue: int = 0, offset: int = 0, limit: int = 100, timeout: float = 0.0
    ) -> list[Message]:
        """Return the messages of `queue` from `offset` on, at most `limit`, after waiting up to
        `timeout` seconds for the first one.

        Raises Damaged or Unreadable if one of them cannot be read; `read_batch` returns those
        before it.
        """
        self._door.check_readable()
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
        """Return messages as `read` does, but as one Batch with their bodies; None if there are
        none.

        The batch may have fewer than `limit` messages although there are more. Go on from
        `batch.next`.
        """
        queue, offset, limit = check_place(topic, queue, offset, limit)
        wait = check_seconds("timeout", timeout)
        return await self._door.read_batch(topic, queue, offset, limit, wait)

    async def wait(
        self, places: Mapping[tuple[str, int], int], *, timeout: float
    ) -> dict[tuple[str, int], int]:
        """Wait up to `timeout` seconds until a queue has a message at its offset or after it.

        `places` has the offset for each topic and queue. Return those that have such a message,
        with the offset of the queue's next one; nothing at the end of the time. A program that
        copies messages elsewhere waits like this for all of its queues at once.
        """
        wanted = check_places(places)
        found = await self._door.wait(wanted, check_seconds("timeout", timeout))
        return {(topic, queue): end for topic, queue, end in found}

    async def tail(
        self, position: int = 0, *, topics: str | Iterable[str] | None = None, limit: int = 1000
    ) -> Appended:
        """Return what appends from `position` on have published to `topics`, or to all topics, in
        the order of the journal. Appends are whole: of a transaction or a `send_many` all
        messages are there, so there may be some more than `limit`.

        `position` is 0 at first, and later the `position` of the last result. Messages that a
        topic's own retention has dropped are left out: then offsets are missing. Raises
        PositionGone if the journal begins behind `position`.
        """
        position, limit = check_count("position", position, 0), check_count("limit", limit)
        named = None if topics is None else [*check_names("topic", topics)]
        return await self._door.run(appended, position, named, limit)

    async def find(self, topic: str, *, key: str, limit: int = 100) -> list[Message]:
        """Return up to `limit` messages of `topic` with this key, the newest first.

        It reads the key marks of the full segments, the heads of newer messages, and the messages
        that it finds. The first call for a segment makes its marks. Raises Damaged or Unreadable if
        it meets a record that cannot be read.
        """
        return await self._door.run(found_messages, *check_find(topic, key, limit))

    async def unread(self, group: str, topic: str, *, limit: int = 100) -> list[Message]:
        """Return messages that `group` has not acked, at most `limit`, the oldest first. They are
        not taken: other members may have them in hand. Messages that a filter will pass over are
        included until a poll has looked at them.
        """
        limit = check_count("limit", limit)
        return await self._door.run(unread_messages, *check_texts(group, topic), limit)

    async def delayed(self, topic: str | None = None, *, limit: int = 100) -> list[DelayedReceipt]:
        """Return the receipts of up to `limit` delayed records, of all topics or of one, in the
        order in which they are due.

        It reads the heads of waiting records until it has enough of the topic.
        """
        if topic is not None:
            check_text("topic", topic)
        return await self._door.look("delayed", topic, check_count("limit", limit))

    # --- transactions ---------------------------------------------------------------------------

    async def outcome(self, tx_id: str) -> Outcome:
        """Return whether a transaction is undecided, committed or rolled back, and why."""
        return await self._door.look("outcome", tx_id)

    async def undecided(self) -> list[UndecidedTransaction]:
        """Return the prepared transactions that wait for their decision, the oldest first."""
        return await self._door.look("undecided")

    async def mark(self, name: str) -> Mark | None:
        """Return the mark that a committed transaction has set under `name`; None if there
        is none.
        """
        return await self._door.look("mark", check_text("mark", name))

    async def marks(self, *names: str, prefix: str | None = None) -> dict[str, Mark]:
        """Return the marks of `names` that are set, and all whose names begin with `prefix`, as
        they are at one instant.
        """
        return await self._door.look("marks", *check_marks(names, prefix))

    # --- topics and groups ----------------------------------------------------------------------

    async def queues(self, topic: str | None = None) -> list[QueueInfo]:
        """Return all queues, or those of one topic, with their offsets at this instant."""
        if topic is not None:
            check_text("topic", topic)
        return await self._door.look("queues", topic)

    async def groups(self, group: str | None = None) -> list[GroupInfo]:
        """Return the progress of all groups, or of one, in each queue that they have taken from."""
        if group is not None:
            check_text("group", group)
        return await self._door.look("groups", group)

    async def clients(self) -> list[ClientInfo]:
        """Return the clients that are connected to the engine's process, this one included; none if
        it serves no other process. Raises ReadOnly of an engine that only reads, which cannot know
        them.
        """
        return await self._door.look("clients")

    async def offset_at(self, topic: str, queue: int, time: datetime) -> int:
        """Return the offset of the first message of a queue that was sent at `time` or later. If
        there is none, return the offset that the next message will get.
        """
        queue, _, _ = check_place(topic, queue, 0, 1)
        return await self._door.look("offset_at", topic, queue, as_us(check_time("time", time)))

    @overload
    async def topic(self, name: str, *, codec: None = None) -> AsyncTopic: ...

    @overload
    async def topic(self, name: str, *, codec: Codec[T]) -> AsyncTypedTopic[T]: ...

    async def topic(
        self, name: str, *, codec: Codec[Any] | None = None
    ) -> AsyncTopic | AsyncTypedTopic[Any]:
        """Return a handle of a topic, to look at it or to change it. Raises UnknownTopic.

        With a `codec` the handle sends values instead of bodies, and the deliveries of consumers
        that this engine object makes have a `value`. The topic is made if it does not exist, and
        the codec's name, version and fields are stored with it. Raises CodecDiffers if another one
        is stored, and ReadOnly if this engine only reads.
        """
        if codec is None:
            await self._door.look("check_topic", check_text("topic", name))
            return AsyncTopic(self._door, name)
        check_codec(codec)
        said, door = described(codec), cast(AsyncEngineDoor, self._door)
        await door.change(
            "set_codec", check_text("topic", name), said.name, said.version, said.fields
        )
        door.codecs[name] = codec
        return AsyncTypedTopic(door, name, codec)

    async def group(self, name: str) -> AsyncGroup:
        """Return a handle of a group, to look at it, or to move or delete it. Raises
        UnknownGroup.
        """
        await self._door.look("check_group", check_text("group", name))
        return AsyncGroup(self._door, name)

    async def dead_letters(self, group: str) -> AsyncDeadLetters:
        """Return a handle of the dead letters of a group. Raises UnknownGroup."""
        await self._door.look("check_group", check_text("group", group))
        return AsyncDeadLetters(self._door, group)

    async def schedules(self) -> list[ScheduleInfo]:
        """Return all schedules, sorted by name."""
        return await self._door.look("schedules", None)

    async def scheduled(self, name: str) -> AsyncSchedule:
        """Return a handle of a schedule, to look at it or to change it. Raises UnknownSchedule."""
        found = AsyncSchedule(self._door, check_text("schedule name", name))
        await found.info()
        return found

    # --- the engine itself ----------------------------------------------------------------------

    @property
    def path(self) -> str:
        return self._door.path

    @property
    def options(self) -> Options:
        """Return a copy of the options that apply now: those that the directory stores, and for all
        others the values with which the engine was opened. `settings` says which option comes from
        where.
        """
        return replace(self._door.options)

    async def settings(self) -> list[Setting]:
        """Return all options, each with its value, its default, and who has set it: the directory,
        for all who use it, or this opening.
        """
        return await self._door.look("settings")

    async def stats(self) -> Stats:
        """Return a snapshot of the engine."""
        return await self._door.stats()

    async def backup(
        self, destination: str | PathLike, *, progress: Progress | None = None
    ) -> Backup:
        """Copy to the directory `destination` what the backup there lacks of all that is visible
        now, and return what `fmq.backup` does. The engine goes on.

        `progress` is called with the bytes that are copied and those that there are to copy. An
        error that it raises ends the call, and the backup from before is left. A client copies the
        files itself, so it must be on the machine of its engine process. Raises BackupRefused if it
        speaks to it over TCP, or `destination` holds something else.
        """
        return await self._door.backup(check_local(path_text(destination)), progress)

    async def close(self) -> None:
        """Wait for running calls, write a checkpoint, and release the directory.

        Undecided transactions stay undecided. Raises StorageError if the machine refuses to close a
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
    """The calls of engines that write: those of `fmq.open` and of `fmq.connect`."""

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
        """Append one message. The message is durable and visible on return.

        With `sync=False` the call does not wait, unless 8 MiB are pending: the message becomes
        durable and visible with the next sync of any call, or at a normal end of the process. With
        `sync=True` it is durable on return, whatever the options say. All that the coroutines of a
        loop send in one of its turns shares one sync.

        With `delay`, in seconds, or `deliver_at` the message becomes visible at that time, and gets
        its offset then. The receipt is a DelayedReceipt, which `recall` takes.
        """
        how = key, tag, headers, queue, producer, message_id, priority, expires_at
        what = topic, body, made_send_arguments(how)
        return await self._door.send(*what, delay, deliver_at, sync)

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
        """Append bodies or Messages: all of them or none. Return one receipt for each record.

        A record holds at most 65,536 messages of one queue. More messages take several records of
        one append, and one sync makes them durable and visible. `delay` and `deliver_at` are as in
        `send`, and hold for all messages. `recall` ends the wait of a record as a whole.
        """
        return await self._door.send_many(topic, bodies, queue, producer, delay, deliver_at, sync)

    async def recall(self, receipt: Receipt) -> bool:
        """Take back messages that wait for their time. Return whether that came in time.

        If it did, the messages never appear. If it did not, they were published or recalled before.
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

        After a prepare, no checker is asked about it for `check_after` seconds. With `bind`, a
        connection to the user's database, the block also begins and ends a transaction of the
        database: both commit, or neither does. A connection of asyncio needs `async with`. On a
        loop a `tx_id` is claimed when the block begins, at `await`, or by the first step.
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
        """Commit or roll back an undecided transaction, in place of its producer.

        The same decision again succeeds; the opposite one raises AlreadyDecided. With `seal`, only
        a transaction with this seal is decided.
        """
        why, by = "" if reason is None else reason, "" if decided_by is None else decided_by
        named = {"reason": why, "decided_by": by, "seal": seal}
        return await self._door.change("decide", tx_id, decision, **named)

    async def decide_many(
        self, tx_ids: Iterable[str], decision: PlainDecision, *, mark: MarkMove | None = None
    ) -> None:
        """Commit or roll back many prepared transactions by one decision: readers see all of their
        messages at one instant, and a crash leaves none of them decided, or all.

        With `mark`, the mark of that name gets a new value in the same decision, if it has the
        value that is expected: `(name, value, expect)`, as in `tx.mark`. The same call again
        succeeds, and changes nothing. Raises AlreadyDecided, UnknownTransaction or MarkMoved, and
        then nothing was decided.
        """
        await self._door.change("decide_many", check_ids(tx_ids), decision, mark)

    @property
    def feedback(self) -> AsyncFeedback:
        """Return the feedback service, where producers ask for questions and answer them."""
        return self._door.feedback

    def checker(self, producer: str) -> Callable[[C], C]:
        """Register the decorated function as a checker for the transactions of `producer`.

        It takes a Question and returns "commit", "rollback" or "unknown". A thread of this process
        calls it, for transactions that any process has prepared. A coroutine function runs on the
        loop that registers it.
        """
        return self._door.checker(producer)

    async def settle(self, *, timeout: float = 30.0) -> Settled:
        """Ask the registered checkers about all transactions that are undecided now. Return what
        they answered.
        """
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
        """Prepare `messages`, pairs of topic and body, call `local`, and decide as its answer says.

        `local` takes the transaction and returns "commit", "rollback" or "unknown"; None means
        unknown. If it raises, the checker is asked later. On a loop a thread calls it, unless it is
        a coroutine function.
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

        A new group begins with the oldest messages. It has the `filter` of its first consumer; a
        consumer with another one raises FilterDiffers.

        Members compete for messages, unless a `strategy` shares the queues among them: the name of
        a strategy of `fmq.allocation`, or a function, which another process cannot call. Then a
        poll calls `on_change` with the queues that this member has lost and gained, as pairs of
        topic and number.

        With `ordered`, the messages of each key come in their order: the next one when those before
        it are acked, or together with them. The strategy is "sticky" then, if none is named.

        A consumer that gives the name of another `member` takes its place. A `strict` one is in no
        group with members that read other topics. With `broadcast` it gets every message from now
        on, whatever others get, and leaves nothing behind when it goes.

        `retry` says how often a message is tried, and how long it waits after a failed attempt.
        `expired` messages are passed over: they "count", or each becomes a "dead_letter", too. At a
        `damaged` message a poll "raise"s, or it "skip"s its whole record, as `group.skip` does,
        with a warning in the log.
        """
        door = self._door
        name = door.new_member() if member is None else member
        wanted = None if filter is None else text_of(filter)
        asked = check_joining(
            *(topics, group, lease_seconds, name, strategy, wanted, door.options),
            ordered=ordered,
            strict=strict,
            on_change=on_change,
            broadcast=broadcast,
            retry=retry,
            expired=expired,
            damaged=damaged,
        )
        made: Any = door.consumer(asked)
        made._door.codecs = door.codecs
        found: M = made
        return found

    async def create_topic(
        self, name: str, *, queues: int | None = None, retain_seconds: float | None = None
    ) -> AsyncTopic:
        """Make a topic before its first message. Raises TopicExists if it exists.

        Arguments that are None are as the options say.
        """
        await self._door.change("make_topic", name, queues, retain_seconds)
        return AsyncTopic(self._door, name)

    async def configure(self, options: Options | None = None, *, reset: Iterable[str] = ()) -> None:
        """Store the options that `options` names in the directory. From now on they hold for all
        who use the directory. The options named in `reset` are no longer stored.

        Limits, retention, leases and what is asked of checkers change at once; `settings` says
        what waits for the next opening. Raises BadOption for an option that is not the
        directory's. A client that is connected keeps to larger limits once it connects again.
        """
        values, gone = check_configured(all_named(options), reset)
        await self._door.change("configure", values, gone, False)

    async def create_group(
        self,
        name: str,
        topic: str,
        *,
        at: At = "earliest",
        filter: Filter | None = None,
        exist_ok: bool = False,
    ) -> None:
        """Make a group of `topic` before its first consumer.

        It begins at the "earliest" message, the "latest" one, an offset, or a time (a datetime).
        Raises GroupExists if it exists. With `exist_ok` it stays where it is then, and
        FilterDiffers is raised if it has another filter.
        """
        flag = check_flag("exist_ok", exist_ok)
        await self._door.change("make_group", name, topic, at, flag, text_of(filter))

    async def schedule(
        self,
        name: str,
        cron: str,
        topic: str,
        body: Body,
        *,
        timezone: str = "UTC",
        key: str | None = None,
        tag: str | None = None,
        headers: Mapping[str, str] | None = None,
        missed: str = "once",
        replace: bool = False,
        by: str | None = None,
    ) -> AsyncSchedule:
        """Publish a message again and again, at the times that `cron` names in `timezone`: each due
        time once, over crashes, clocks that are set, and daylight saving.

        `cron` has five fields (minute, hour, day, month, weekday), or six with the seconds in
        front. The message has the headers "fmq-schedule" with the name, and "fmq-due" with the
        time. It is published by the process that has the directory open. Times that were missed
        for more than a minute, because no process had, become one message with `missed` "once",
        and none with "skip".

        The same schedule again changes nothing. Another one of this name raises ScheduleDiffers,
        or replaces it with `replace`. Needs the extra `cron` where the engine is; without it,
        raises ExtraMissing.
        """
        said = check_schedule(
            *(name, cron, topic, body, timezone, key, tag, headers, missed, caller(by))
        )
        replaces = check_flag("replace", replace)
        await self._door.change("schedule", *said.asked(), replaces)
        return AsyncSchedule(self._door, name)

    # --- the engine itself ----------------------------------------------------------------------

    async def erase(
        self,
        topic: str,
        queue: int | None = None,
        offset: int | None = None,
        *,
        key: str | None = None,
    ) -> Erased:
        """Erase one message, or all messages of `topic` that have `key`, for good: what they were
        is overwritten in every file of the directory, copies and dead letters included.

        An erased message keeps its offset. No group gets it any more, and a reader gets a message
        with an empty body, of which `erased` is true. The journal records that it was erased, and
        not what it was. Message ids stay, so that each is still taken once. Backups, exports and
        what consumers have taken are not reached. The call reads the whole journal.

        Raises EraseRefused for a message that an undecided transaction holds, or that waits for its
        time, and UnknownTopic, OffsetGone or OffsetBeyond.
        """
        return await self._door.change("erase", *check_erased(topic, queue, offset, key))

    async def sync(self) -> None:
        """Make everything sent so far durable, whatever the sync mode."""
        await self._door.change("sync")

    async def checkpoint(self) -> None:
        """Write a checkpoint, from which recovery can start. Chores write them, too."""
        await self._door.change("checkpoint")
