"""An opened directory: the public calls. Each checks, calls the parts, and returns."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Any, overload

from fmq.allocation import Strategy
from fmq.background import Background
from fmq.bind.begin import begin_bound
from fmq.bind.databases import Databases
from fmq.bind.transaction import BoundTransaction
from fmq.chores.checkpointer import no_checkpoint
from fmq.clock import Clock, as_us
from fmq.consume.backoff import Retry
from fmq.consume.broadcast import check_broadcast
from fmq.consume.changing import At
from fmq.consume.consumer import Consumer
from fmq.consume.dead_letter import DeadLetters, EngineDeadLetters
from fmq.consume.group import Group
from fmq.consume.member import GroupMember
from fmq.consume.membership import COUNT, RAISE, SKIP, OnChange, check_member, check_membership
from fmq.consume.sieve import text_of
from fmq.consume.topic import TopicHandle
from fmq.consume.unread import messages_of
from fmq.disk import Directory
from fmq.errors import BadOption, Closed, FmqError, Forked, Nested, StorageError
from fmq.feedback.answers import Answer, Checker, check_callable
from fmq.feedback.checkers import Checkers
from fmq.feedback.local_transaction import send_with
from fmq.feedback.service import Feedback
from fmq.filters import Filter
from fmq.message import Body, Decision, DelayedReceipt, Mark, Message, Receipt
from fmq.options import Options
from fmq.parts import Parts
from fmq.processes import absolute, new_member
from fmq.recovery.recover import Claimed
from fmq.results import GroupInfo, MemberInfo, Outcome, QueueInfo, Settled, UndecidedTransaction
from fmq.server.doors import Reach
from fmq.server.host import Host
from fmq.server.serving import Serving
from fmq.shutdown import (
    Closing,
    LastCheckpoint,
    forget,
    free_locks,
    refusals_of_close,
    remember,
    wake_all,
)
from fmq.stats import Stats
from fmq.store.batch import Batch
from fmq.store.section import is_mine
from fmq.tx.due import check_due, timing_of
from fmq.tx.find import check_find, read_places
from fmq.tx.messages import read_in_batches
from fmq.tx.names import (
    check_count,
    check_flag,
    check_marks,
    check_place,
    check_seconds,
    check_text,
    check_texts,
    check_time,
)
from fmq.tx.sender import first_receipt_of, receipts_of
from fmq.tx.transaction import Transaction


class Engine:
    """A directory opened for writing, made by `fmq.open`. Safe for threads."""

    def __init__(
        self,
        path: str,
        directory: Directory,
        claim: Claimed,
        drawn: bytes,
        options: Options,
        clock: Clock,
        *,
        background: bool,
    ) -> None:
        """`claim` is what recovery found in `directory`; `drawn` are random bytes for ids."""
        self._path = path
        self._directory = directory
        self._options = options
        self._refusal: FmqError | None = None
        self._closing = Closing()
        self._background = background
        self._threads: Background | None = None
        self._serving: Serving | None = None
        self._drawn = drawn
        self._unlock = claim.unlock
        calls = self._check, self._check_open, self._after
        self._parts = parts = Parts(directory, claim.found, options, clock, drawn, *calls)
        self._plan_of = parts.manager.message_ids.planner
        self._report = claim.found.report
        self._writer, self._sender, self._manager = parts.writer, parts.sender, parts.manager
        threads = options.checker_threads if background else 0
        self._checkers = Checkers(parts.feedback, parts.questions, clock, threads)
        self._clock = clock
        self._databases: Databases | None = None
        parts.group_changes.grow_topics()
        if background:
            self._threads = Background(parts, clock, options)
            try:
                self._threads.start()
            except BaseException as error:
                self._refusal = Closed(f"{path}: the engine was not opened: {error}")
                parts.close()
                raise
        remember(self)

    # --- sending --------------------------------------------------------------------------------

    def send(
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
        process. With `sync=True` it is durable on return, whatever the options say.

        With `delay`, in seconds, or `deliver_at` it is visible from then on, and has an offset only
        then. Its receipt is a DelayedReceipt, which `recall` takes.
        """
        if self._refusal is not None:
            self._check()
        due = None
        if delay is not None or deliver_at is not None:
            due = check_due(delay, deliver_at, self._clock.time_us())
        sent = self._sender.one(
            topic, body, key, tag, headers, queue, producer, message_id, priority, expires_at, due
        )
        if due is not None:
            self._parts.delays.check(sent)
        plan = self._writer.send if message_id is None else self._plan_of(sent)
        self._parts.commit_queue.run(plan, sent, sync)
        if not self._background:
            self._after()
        return first_receipt_of(sent)

    def send_many(
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
        self._check()
        timing = check_due(delay, deliver_at, self._clock.time_us())
        sent = self._sender.many(topic, bodies, queue, producer, timing)
        if sent is None:
            self._parts.commit_queue.waits(sync)
            return []
        if timing is not None:
            self._parts.delays.check(sent)
        self._parts.commit_queue.run(self._plan_of(sent), sent, sync)
        self._after()
        return receipts_of((*sent.records, *sent.left_out))

    def recall(self, receipt: Receipt) -> bool:
        """Take back messages that wait for their time; return whether that came in time.

        If so, they never appear. If not, they were published, or recalled before.
        """
        self._check()
        timing = timing_of(receipt)
        in_time = timing is not None and self._parts.delays.recall(timing)
        self._after()
        return in_time

    def delayed(self, topic: str | None = None, *, limit: int = 100) -> list[DelayedReceipt]:
        """Return the receipts of up to `limit` records that wait, of all topics or of one, in the
        order in which they are due.

        It reads their heads until it has enough of the topic.
        """
        self._enter()
        if topic is not None:
            check_text("topic", topic)
        return self._parts.delays.look(topic, check_count("limit", limit))

    # --- transactions ---------------------------------------------------------------------------

    @overload
    def transaction(
        self,
        *,
        tx_id: str | None = None,
        producer: str | None = None,
        check_after: float | None = None,
        bind: None = None,
    ) -> Transaction: ...

    @overload
    def transaction(
        self,
        *,
        tx_id: str | None = None,
        producer: str | None = None,
        check_after: float | None = None,
        bind: Any,
    ) -> BoundTransaction: ...

    def transaction(
        self,
        *,
        tx_id: str | None = None,
        producer: str | None = None,
        check_after: float | None = None,
        bind: Any = None,
    ) -> Transaction:
        """Return a new transaction over any topics. As a `with` block it commits at its end.

        No checker is asked about it for `check_after` seconds after prepare. With `bind`, a
        connection to the user's database, the block begins and ends the database's transaction as
        well: both commit, or neither does. A connection of asyncio needs `async with`.
        """
        self._check()
        if bind is None:
            return self._manager.begin(tx_id, producer, check_after)
        feedback, checkers = self._parts.feedback, self._checkers
        names = tx_id, "" if producer is None else producer
        strict = self._options.strict_bind
        databases = self._with_databases()
        return begin_bound(
            self._manager, feedback, checkers, databases, bind, *names, check_after, strict=strict
        )

    def _with_databases(self) -> Databases:
        """Return the databases that producers are bound to. The first call makes the object."""
        with self._checkers.lock:
            if self._databases is None:
                self._databases = Databases(self, self._clock, background=self._background)
            return self._databases

    def _resolve(self, addresses: Mapping[str, object]) -> None:
        """Ask the databases at `addresses` what became of their producers' transactions."""
        self._with_databases().resolve(addresses)

    def outcome(self, tx_id: str) -> Outcome:
        """Return whether a transaction is undecided, committed or rolled back, and why."""
        self._enter()
        try:
            return self._manager.decisions.outcome(tx_id)
        except OSError:
            self._check_open()
            raise

    def undecided(self) -> list[UndecidedTransaction]:
        """Return the sealed transactions that wait for their decision, the oldest first."""
        self._enter()
        return self._parts.questions.undecided()

    def decide(
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
        self._check()
        why, by = "" if reason is None else reason, "" if decided_by is None else decided_by
        outcome = self._manager.decisions.decide(
            tx_id, decision, reason=why, decided_by=by, seal=seal
        )
        self._after()
        return outcome

    @property
    def feedback(self) -> Feedback:
        """Return the feedback service, where producers take questions and answer them."""
        return self._parts.feedback

    def checker(self, producer: str) -> Callable[[Checker], Checker]:
        """Register the decorated function as a checker for the transactions of `producer`.

        It takes a Question and returns "commit", "rollback" or "unknown".
        """
        self._check()
        return self._checkers.decorator(producer)

    def settle(self, *, timeout: float = 30.0) -> Settled:
        """Ask the registered checkers about all that is undecided now. Return what came of it."""
        self._check()
        return self._checkers.settle(check_seconds("timeout", timeout))

    def send_in_transaction(
        self,
        messages: Iterable[tuple[str, Body | Message]],
        local: Callable[[Transaction], Answer | None],
        *,
        producer: str | None = None,
        tx_id: str | None = None,
        check_after: float | None = None,
    ) -> Outcome:
        """Prepare `messages`, pairs of topic and body, call `local`, and decide as it answers.

        `local` returns "commit", "rollback" or "unknown", which None also means. If it raises, the
        checker is asked later.
        """
        check_callable("local", local)
        tx = self.transaction(tx_id=tx_id, producer=producer, check_after=check_after)
        return send_with(tx, messages, local, self._parts.questions)

    # --- reading --------------------------------------------------------------------------------

    def read(
        self, topic: str, *, queue: int = 0, offset: int = 0, limit: int = 100, timeout: float = 0.0
    ) -> list[Message]:
        """Return the messages of `queue` from `offset`, at most `limit`; wait `timeout` seconds.

        Raises Damaged or Unreadable if one of them is; `read_batch` returns those before it.
        """
        self._enter()
        return read_in_batches(self.read_batch, topic, queue, offset, limit, timeout)

    def read_batch(
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
        self._enter()
        queue, offset, limit = check_place(topic, queue, offset, limit)
        timeout = check_seconds("timeout", timeout)
        messages = self._parts.messages
        try:
            return messages.batch_within(topic, queue, offset, limit, timeout, self._check_open)
        except OSError:
            self._check_open()  # another thread may have closed it, and its files
            raise

    def find(self, topic: str, *, key: str, limit: int = 100) -> list[Message]:
        """Return up to `limit` messages of `topic` with this key, the newest first.

        It reads the marks of keys, which the first call makes for each full segment, the heads of
        what is newer, and what it finds. Raises Damaged or Unreadable if it meets that.
        """
        self._enter()
        topic, key, limit = check_find(topic, key, limit)
        return read_places(
            self.read_batch, topic, key, self._parts.finder.places(topic, key, limit)
        )

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
    ) -> Consumer:
        """Return a member of `group`, which shares the messages of `topics`.

        A new group begins with the oldest messages, and has the `filter` of its first consumer;
        then FilterDiffers is raised for another one. Members compete for messages, or `strategy`
        shares the queues among those who read them: a name of `fmq.allocation`, or a function.
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
        name = new_member() if member is None else member
        is_told = on_change is not None
        wanted = None if filter is None else text_of(filter)
        what = topics, group, lease_seconds, name, strategy, wanted
        return self._consumer(
            *what,
            ordered=ordered,
            strict=strict,
            is_told=is_told,
            on_change=on_change,
            broadcast=broadcast,
            retry=retry,
            expired=expired,
            damaged=damaged,
        )

    def _consumer(
        self,
        topics: str | Iterable[str],
        group: str,
        lease_seconds: float | None,
        member: str,
        strategy: str | Strategy | None,
        wanted: str | None,
        *,
        ordered: bool,
        strict: bool,
        is_told: bool,
        on_change: OnChange | None,
        broadcast: bool = False,
        retry: Retry | None = None,
        expired: str = COUNT,
        damaged: str = RAISE,
    ) -> Consumer:
        """Return a consumer. One that `is_told` without `on_change` serves a client."""
        self._check()
        names, group, lease = check_membership(topics, group, lease_seconds, self._options)
        how: dict[str, Any] = {"ordered": ordered, "strict": strict, "is_told": is_told}
        how |= {"retry": retry, "expired": expired, "damaged": damaged}
        who = check_member(member, names, strategy, **how)
        parts = self._parts
        what = parts.messages, parts.groups, self._writer, self._check, who
        skip = parts.group_changes.skip if damaged == SKIP else None
        rest = lease, self._after, parts.burying, on_change, skip
        if not check_flag("broadcast", broadcast):
            parts.group_changes.join(group, names, wanted)
            return Consumer(GroupMember(*what, group, *rest))
        check_broadcast(strategy, ordered=ordered, strict=strict)
        with parts.broadcasts.joining(group, member, names, wanted) as own:
            joined = GroupMember(*what, own, *rest)
        joined.named, joined.on_left = group, partial(parts.broadcasts.left, own)
        return Consumer(joined)

    def create_topic(
        self, name: str, *, queues: int | None = None, retain_seconds: float | None = None
    ) -> TopicHandle:
        """Make a topic before its first message, once: else TopicExists is raised.

        What is None is as the options say.
        """
        self._check()
        self._parts.group_changes.make_topic(name, queues, retain_seconds)
        self._after()
        return self.topic(name)

    def topic(self, name: str) -> TopicHandle:
        """Return a topic, to look at it or to change it; raise UnknownTopic."""
        self._enter()
        self._parts.group_changes.check_topic(check_text("topic", name))
        return TopicHandle(name, self._parts.group_changes, self.queues)

    def create_group(
        self, name: str, topic: str, *, at: At = "earliest", filter: Filter | None = None
    ) -> None:
        """Make a group of `topic` before its first consumer, once: else GroupExists is raised.

        It begins at the "earliest" message, the "latest" one, an offset, or a time (a datetime).
        """
        self._check()
        self._parts.group_changes.make(name, topic, at, text_of(filter))
        self._after()

    def group(self, name: str) -> Group:
        """Return a group, to look at it, or to move or delete it; raise UnknownGroup."""
        self._enter()
        self._parts.group_changes.check_known(check_text("group", name))
        return Group(name, self._parts.group_changes, self.groups, self._members)

    def dead_letters(self, group: str) -> DeadLetters:
        """Return the dead letters of a group; raise UnknownGroup."""
        self._enter()
        self._parts.group_changes.check_known(check_text("group", group))
        return DeadLetters(group, EngineDeadLetters(self._parts.burying, self._check, self._after))

    def _members(self, group: str) -> list[MemberInfo]:
        self._enter()
        return self._parts.group_changes.members(group)

    def offset_at(self, topic: str, queue: int, time: datetime) -> int:
        """Return the offset of the first message of a queue that was sent at `time` or later; the
        next one to be given if there is none.
        """
        self._enter()
        queue, _, _ = check_place(topic, queue, 0, 1)
        return self._parts.messages.offset_at(topic, queue, as_us(check_time("time", time)))

    def mark(self, name: str) -> Mark | None:
        """Return the mark that a committed transaction has set under `name`; None without one."""
        self._enter()
        return self._parts.messages.mark(check_text("mark", name))

    def marks(self, *names: str, prefix: str | None = None) -> dict[str, Mark]:
        """Return those of the marks `names` that are set, and all whose name begins with `prefix`,
        as they are at one instant.
        """
        self._enter()
        return self._parts.messages.marks(*check_marks(names, prefix))

    def unread(self, group: str, topic: str, *, limit: int = 100) -> list[Message]:
        """Return messages that `group` has not acked, at most `limit`, the oldest first. Nothing is
        taken: another member may have them in hand. Those that a filter will pass over are there
        too, until a poll has come to them.
        """
        self._enter()
        limit = check_count("limit", limit)
        ranges = self._parts.messages.unacked(*check_texts(group, topic), limit)
        replayed = partial(self._parts.burying.replayed, group, topic)
        return messages_of(ranges, topic, limit, self.read, replayed)

    def queues(self, topic: str | None = None) -> list[QueueInfo]:
        """Return all queues, or those of one topic, with their offsets at this instant."""
        self._enter()
        if topic is not None:
            check_text("topic", topic)
        return self._parts.messages.queues(topic)

    def groups(self, group: str | None = None) -> list[GroupInfo]:
        """Return how far each group is, or one group, in each queue it has taken from."""
        self._enter()
        if group is not None:
            check_text("group", group)
        return self._parts.messages.groups(group)

    # --- the engine itself ----------------------------------------------------------------------

    @property
    def path(self) -> str:
        return self._path

    @property
    def options(self) -> Options:
        """Return a copy of the options that the engine was opened with."""
        return replace(self._options)

    def sync(self) -> None:
        """Make everything sent so far durable, whatever the sync mode."""
        self._check()
        self._parts.commit_queue.flush(force=True)
        self._after()

    def checkpoint(self) -> None:
        """Write a checkpoint, from which recovery can start. Chores write them, too."""
        self._check()
        self._parts.refuse_nested()
        self._parts.commit_queue.flush(force=True)
        try:
            self._parts.chores.checkpoint()
        except StorageError:
            raise
        except OSError as error:
            raise no_checkpoint(self._path, error) from error

    def serve(
        self,
        *,
        tcp: str | None = None,
        token_file: str | None = None,
        tls_cert: str | None = None,
        tls_key: str | None = None,
        sockets: Iterable[Any] = (),
    ) -> Serving:
        """Let other processes use the directory, by `fmq.connect`, until what this returns, or the
        engine, is closed. A thread serves them, through a socket in the directory.

        Other machines may reach it at `tcp`, as HOST:PORT, if they know the token in `token_file`.
        Beyond loopback that needs TLS: a certificate and its key, files in PEM. `sockets` are
        others that listen already. While it serves, it is not changed by another call.
        """
        self._check()
        if not self._background:
            raise BadOption(
                "an engine with background=False has no threads, so it cannot serve. Nothing was "
                "changed; open it with background=True, as it is by default."
            )
        if self._serving is None or self._serving.has_ended:
            make = partial(Host, self, self._parts, incarnation=self._drawn, after=self._after)
            reach = Reach(tcp, token_file, tls_cert, tls_key, tuple(sockets))
            self._serving = Serving(absolute(self._path), make, reach)
        return self._serving

    def stats(self) -> Stats:
        """Return a snapshot of the engine."""
        if isinstance(self._refusal, Forked):
            raise self._refusal.with_traceback(None)
        parts = self._parts
        parts.refuse_nested()
        parts.commit_queue.catch_up()
        ledger = parts.ledger
        with suppress(FmqError):  # an engine that has failed counts what was on its way, too
            parts.writer.catch_up(
                max(ledger.changed_at, ledger.decided_at, ledger.timers.changed_at)
            )
        with parts.lock:
            topics = ledger.own_topics()
        spans = [queue.next - queue.first for topic in topics for queue in topic.queues]
        counts = len(spans), sum(spans)
        with parts.lock:
            stats = Stats.of(
                *(self._path, parts.journal, ledger, parts.commit_queue, parts.chores),
                *(self._report, *counts),
            )
        if stats.trouble is None and self._databases is not None:
            return replace(stats, trouble=self._databases.trouble)
        return stats

    def _check(self) -> None:
        """Raise if the engine is closed or has failed."""
        if self._refusal is not None:
            # An earlier traceback would keep the objects of its callers alive.
            raise self._refusal.with_traceback(None)
        if self._parts.commit_queue.failure is not None:
            self._parts.commit_queue.check()

    def _check_open(self) -> None:
        """Raise if nothing can be read any more. A failed engine still shows what was visible."""
        if self._refusal is not None:
            raise self._refusal.with_traceback(None)
        if self._parts.commit_queue.failure is not None:
            self._parts.check_whole()

    def _enter(self) -> None:
        """Raise if nothing can be read, or if a signal handler calls while its own thread changes
        what it would read.
        """
        if is_mine(self._parts.lock):
            raise Nested
        self._check_open()
        if self._parts.commit_queue.owes:
            self._parts.commit_queue.catch_up()

    def _after(self) -> None:
        # Not in the child of a fork, where a thread that is missing may hold the lock of chores.
        if not self._background and self._refusal is None:
            self._parts.chores.attempt()

    def close(self) -> None:
        """Wait for running calls, write a checkpoint, release the directory.

        What is undecided stays undecided. Raises StorageError if the machine refuses to close a
        file. Then everything else is closed, and a second call does nothing.
        """
        self._parts.refuse_nested()
        with self._parts.lock:
            if self._refusal is None:
                refusal = Closed(
                    f"{self._path}: the engine is closed; fmq.open() opens the directory again"
                )
                self._closing.begin(self._steps_to_close(refusal))
                self._refusal = refusal
        with refusals_of_close(self._path):
            self._closing.go_on()

    def _releases(self) -> tuple[Callable[[], None], ...]:
        return self._parts.close, self._unlock, self._directory.close

    def _process_ends(self) -> None:
        with suppress(Closed):  # another thread may have closed it
            self._parts.commit_queue.process_ends()

    def _release(self) -> None:
        for release in self._releases():
            with suppress(Exception):
                release()

    def _steps_to_close(self, refusal: Closed) -> list[Callable[[], None]]:
        steps: list[Callable[[], None]] = [partial(wake_all, self._parts), self._checkers.stop]
        if self._serving is not None:
            steps.insert(0, self._serving.close)
        if self._databases is not None:
            steps.append(self._databases.stop)
        if self._threads is not None:
            steps += self._threads.stops()
        steps.append(LastCheckpoint(self._parts, refusal).write)
        if self._threads is not None:
            steps.append(self._threads.committer.stop)
        return [*steps, *self._releases(), partial(forget, self)]

    def _forked(self) -> None:
        """End this copy in the child of a fork. The parent's engine is not touched."""
        self._refusal = self._parts.commit_queue.failure = Forked(self._path)
        free_locks(self._parts)
        self._closing = Closing()  # a thread that was closing it is missing here
        self._threads = None
        if self._serving is not None:
            self._serving._forked()
        self._release()

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_refusal", True) is None and hasattr(self, "_parts"):
            # Only without threads, which keep a reference. All that was acknowledged is safe.
            self._release()
            warnings.warn(f"{self!r} was not closed", ResourceWarning, stacklevel=2)

    def __repr__(self) -> str:
        state = "open" if self._refusal is None else type(self._refusal).__name__.lower()
        return f"<Engine {self._path} {state}>"
