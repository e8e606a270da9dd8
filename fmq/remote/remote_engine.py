"""An engine in another process: the calls of `Engine`, carried out by the process that serves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial
from itertools import count
from types import TracebackType
from typing import Any

from fmq.allocation import Strategy
from fmq.allocation.saying import say
from fmq.bind.begin import begin_bound
from fmq.bind.databases import Databases
from fmq.clock import Clock
from fmq.consume.backoff import Retry
from fmq.consume.broadcast import check_broadcast
from fmq.consume.changing import At
from fmq.consume.dead_letter import DeadLetters
from fmq.consume.group import Group
from fmq.consume.membership import COUNT, RAISE, OnChange, check_member, check_membership
from fmq.consume.sieve import text_of
from fmq.consume.topic import TopicHandle
from fmq.consume.unread import messages_of
from fmq.errors import Closed, FmqError, Forked
from fmq.feedback.answers import Answer, Checker, check_callable
from fmq.feedback.checkers import Checkers
from fmq.feedback.local_transaction import send_with
from fmq.feedback.service import Feedback
from fmq.filters import Filter
from fmq.message import Body, Decision, DelayedReceipt, Mark, Message, Receipt
from fmq.options import Options
from fmq.processes import new_member
from fmq.remote.link import Link
from fmq.remote.remote_consumer import Membership, RemoteConsumer
from fmq.remote.remote_dead_letters import RemoteDeadLetters
from fmq.remote.remote_groups import RemoteGroups
from fmq.remote.remote_manager import RemoteManager
from fmq.remote.remote_questions import RemoteDecisions, RemoteQuestions
from fmq.remote.remote_topics import RemoteTopics
from fmq.remote.wires import Wire
from fmq.results import GroupInfo, MemberInfo, Outcome, QueueInfo, Settled, UndecidedTransaction
from fmq.shutdown import forget, remember
from fmq.stats import Stats
from fmq.store.batch import Batch
from fmq.store.commit_queue import waits
from fmq.tx.due import check_due, timing_of
from fmq.tx.find import KeyPlace, check_find, read_places
from fmq.tx.ids import DRAWN_BYTES
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
from fmq.tx.router import Router
from fmq.tx.sender import Contents, Sender
from fmq.tx.transaction import Transaction
from fmq.wire.batches import decode_batch
from fmq.wire.frames import Op
from fmq.wire.runs import encode_run
from fmq.wire.sends import decode_sent, encode_recall, encode_send
from fmq.wire.values import encode_values

HANDLES = 1 << 16
Outgoing = tuple[str, str, list[bytes]]
"""Topic, producer, and the runs in parts."""


def _outgoing(topic: str, producer: str, contents: Contents) -> Outgoing:
    parts: list[bytes] = []
    for queue, content in contents:
        parts += encode_run(topic, queue, content)
    return topic, producer, parts


class RemoteEngine:
    """A directory that another process has open, made by `fmq.connect`. Safe for threads."""

    def __init__(
        self,
        where: str,
        dial: Callable[[], Wire],
        draw: Callable[[int], bytes],
        clock: Clock,
        retry_for: float,
        explain: Callable[[], FmqError | None] = lambda: None,
        *,
        background: bool = True,
        token: bytes | None = None,
    ) -> None:
        """`dial` makes a connection or raises OSError, and `draw` returns random bytes. `explain`
        says why there is no connection, if it knows. Without `background` no thread asks checkers.
        `token` is shown to the engine process.
        """
        self._where = where
        self._draw = draw
        self._members: dict[int, Membership] = {}  # by handle
        self._handles = count(1)
        self._topics = RemoteTopics(clock)
        joined = self._joined
        self._link = link = Link(where, dial, draw, clock, retry_for, joined, explain, token)
        link.connect()
        self._router = router = Router(self._topics, self._queues_of, lambda _: True)
        self._sender = Sender(router, link.hello.options, _outgoing)
        self._manager = RemoteManager(link, router, clock, draw(DRAWN_BYTES))
        self._clock = clock
        self._decisions = decisions = RemoteDecisions(link)
        self._questions = questions = RemoteQuestions(link, clock)
        hello = link.hello
        self._feedback = Feedback(questions, decisions, hello.options, hello.store, lambda: None)
        self._background = background
        self._checkers = self._begin_checkers()
        self._databases: Databases | None = None
        remember(self)

    def _begin_checkers(self) -> Checkers:
        threads = self._link.hello.options.checker_threads if self._background else 0
        return Checkers(self._feedback, self._questions, self._clock, threads)

    def _joined(self) -> list[tuple[int, bytes]]:
        self._topics.forget()  # the new process may have other options
        return [(handle, member.said()) for handle, member in [*self._members.items()]]

    def _queues_of(self, topic: str) -> int:
        queues: int = self._link.call("queues_of", topic)
        self._topics.note(topic, queues)
        return queues

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
        """Append one message, as `Engine.send` does."""
        self._link.check()
        timing = check_due(delay, deliver_at, self._clock.time_us(), relative=True)
        extras = message_id, priority, expires_at, timing
        outgoing = self._sender.one(topic, body, key, tag, headers, queue, producer, *extras)
        return self._send(outgoing, sync)[0]

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
        """Append bodies or Messages, all or none of them. Return one receipt for each record."""
        self._link.check()
        timing = check_due(delay, deliver_at, self._clock.time_us(), relative=True)
        outgoing = self._sender.many(topic, bodies, queue, producer, timing)
        if outgoing is None:
            waits(sync, by_default=True)  # or a TypeError
            return []
        return self._send(outgoing, sync)

    def _send(self, outgoing: Outgoing, sync: bool | None) -> list[Receipt]:
        if sync is not None:
            waits(sync, by_default=True)  # or a TypeError
        topic, producer, messages = outgoing
        answer = self._link.write(Op.SEND, encode_send, sync, producer, messages)
        return decode_sent(topic, answer)

    def recall(self, receipt: Receipt) -> bool:
        """Take back messages that wait for their time; return whether that came in time."""
        self._link.check()
        timing = timing_of(receipt)
        if timing is None:
            return False
        return self._link.write(Op.RECALL, encode_recall, timing) == b"\x01"

    def delayed(self, topic: str | None = None, *, limit: int = 100) -> list[DelayedReceipt]:
        """Return the receipts of up to `limit` records that wait, as `Engine.delayed` does."""
        if topic is not None:
            check_text("topic", topic)
        found: list[DelayedReceipt] = self._link.call("delayed", topic, limit=limit)
        return found

    # --- transactions ---------------------------------------------------------------------------

    def transaction(
        self,
        *,
        tx_id: str | None = None,
        producer: str | None = None,
        check_after: float | None = None,
        bind: Any = None,
    ) -> Transaction:
        """Return a new transaction over any topics. As a `with` block it commits at its end.

        With `bind`, a connection to this process's database, both commit, or neither does.
        """
        self._link.check()
        if bind is None:
            return self._manager.begin(tx_id, producer, check_after)
        databases = self._with_databases()
        names = tx_id, "" if producer is None else producer
        what = self._manager, self._feedback, self._checkers, databases, bind
        return begin_bound(*what, *names, check_after, strict=self.options.strict_bind)

    def _with_databases(self) -> Databases:
        """Return the databases that producers are bound to. The first call makes the object."""
        with self._checkers.lock:
            if self._databases is None:
                self._databases = Databases(self, self._clock, background=self._background)
            return self._databases

    def _resolve(self, addresses: Mapping[str, object]) -> None:
        """Ask the databases at `addresses` what became of their producers' transactions."""
        self._with_databases().resolve(addresses)

    @property
    def feedback(self) -> Feedback:
        """Return the feedback service, where producers take questions and answer them."""
        return self._feedback

    def checker(self, producer: str) -> Callable[[Checker], Checker]:
        """Register the decorated function as a checker for the transactions of `producer`.

        Threads of this process ask it, about what any process has prepared.
        """
        self._link.check()
        return self._checkers.decorator(producer)

    def settle(self, *, timeout: float = 30.0) -> Settled:
        """Ask the registered checkers about all that is undecided now. Return what came of it."""
        self._link.check()
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

        `local` returns "commit", "rollback" or "unknown". If it raises, the checker is asked later.
        """
        check_callable("local", local)
        tx = self.transaction(tx_id=tx_id, producer=producer, check_after=check_after)
        return send_with(tx, messages, local, self._questions)

    def outcome(self, tx_id: str) -> Outcome:
        """Return whether a transaction is undecided, committed or rolled back, and why."""
        found: Outcome = self._link.call("outcome", tx_id)
        return found

    def undecided(self) -> list[UndecidedTransaction]:
        """Return the sealed transactions that wait for their decision, the oldest first."""
        found: list[UndecidedTransaction] = self._link.call("undecided")
        return found

    def decide(
        self,
        tx_id: str,
        decision: Decision,
        *,
        reason: str | None = None,
        decided_by: str | None = None,
        seal: str | None = None,
    ) -> Outcome:
        """Commit or roll back an undecided transaction, in its producer's place."""
        why, by = reason or "", decided_by or ""
        return self._decisions.decide(tx_id, decision, reason=why, decided_by=by, seal=seal)

    # --- reading --------------------------------------------------------------------------------

    def read(
        self, topic: str, *, queue: int = 0, offset: int = 0, limit: int = 100, timeout: float = 0.0
    ) -> list[Message]:
        """Return the messages of `queue` from `offset`, at most `limit`; wait `timeout` seconds."""
        self._link.check()
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
        """Return the same as one Batch, which has the bodies; None if there are no messages."""
        self._link.check()
        queue, offset, limit = check_place(topic, queue, offset, limit)
        timeout = check_seconds("timeout", timeout)
        said = encode_values([topic, queue, offset, limit, timeout])
        answer = self._link.ask(Op.READ, said, patience=timeout)
        return decode_batch(answer) if answer else None

    def find(self, topic: str, *, key: str, limit: int = 100) -> list[Message]:
        """Return up to `limit` messages of `topic` with this key, the newest first."""
        topic, key, limit = check_find(topic, key, limit)
        places: list[list[int]] = self._link.call("places_of", topic, key, limit)
        return read_places(self.read_batch, topic, key, [KeyPlace(*each) for each in places])

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
    ) -> RemoteConsumer:
        """Return a member of `group`, which shares the messages of `topics`.

        A `strategy` is a name or one of fmq.allocation, with tables instead of functions: the
        engine process cannot call a function of this one.
        """
        self._link.check()
        names, group, lease = check_membership(
            topics, group, lease_seconds, self._link.hello.options
        )
        name = new_member() if member is None else member
        how: dict[str, Any] = {"ordered": ordered, "strict": strict, "is_told": False}
        how |= {"retry": retry, "expired": expired, "damaged": damaged}
        who = check_member(name, names, strategy, **how)
        if check_flag("broadcast", broadcast):
            check_broadcast(strategy, ordered=ordered, strict=strict)
        said = None if strategy is None or who.strategy is None else say(who.strategy)
        wanted = None if filter is None else text_of(filter)
        asked = names, group, lease, name, said, wanted, who.retry, ordered, strict
        handle = next(each for each in self._handles if each % HANDLES not in self._members)
        what = self._link, self._manager.keeper, self._members, handle % HANDLES
        return RemoteConsumer(*what, Membership(*asked, on_change, broadcast, expired, damaged))

    def create_topic(
        self, name: str, *, queues: int | None = None, retain_seconds: float | None = None
    ) -> TopicHandle:
        """Make a topic before its first message, once: else TopicExists is raised."""
        self._link.change("make_topic", name, queues, retain_seconds)
        return self.topic(name)

    def topic(self, name: str) -> TopicHandle:
        """Return a topic, to look at it or to change it; raise UnknownTopic."""
        self._link.call("check_topic", check_text("topic", name))
        return TopicHandle(name, RemoteGroups(self._link, self._topics.forget), self.queues)

    def create_group(
        self, name: str, topic: str, *, at: At = "earliest", filter: Filter | None = None
    ) -> None:
        """Make a group of `topic` before its first consumer, once: else GroupExists is raised."""
        self._link.change("make_group", name, topic, at, text_of(filter))

    def group(self, name: str) -> Group:
        """Return a group, to look at it, or to move or delete it; raise UnknownGroup."""
        self._link.call("check_group", check_text("group", name))
        changes = RemoteGroups(self._link, self._topics.forget)
        return Group(name, changes, self.groups, self._members_of)

    def dead_letters(self, group: str) -> DeadLetters:
        """Return the dead letters of a group; raise UnknownGroup."""
        self._link.call("check_group", check_text("group", group))
        return DeadLetters(group, RemoteDeadLetters(self._link))

    def _members_of(self, group: str) -> list[MemberInfo]:
        found: list[MemberInfo] = self._link.call("members_of", group)
        return found

    def offset_at(self, topic: str, queue: int, time: datetime) -> int:
        """Return the offset of the first message of a queue that was sent at `time` or later."""
        found: int = self._link.call("offset_at", topic, queue, check_time("time", time))
        return found

    def mark(self, name: str) -> Mark | None:
        """Return the mark that a committed transaction has set under `name`; None without one."""
        found: Mark | None = self._link.call("mark", check_text("mark", name))
        return found

    def marks(self, *names: str, prefix: str | None = None) -> dict[str, Mark]:
        """Return those of the marks `names` that are set, and all whose name begins with `prefix`,
        as they are at one instant.
        """
        found: dict[str, Mark] = self._link.call("marks", *check_marks(names, prefix))
        return found

    def unread(self, group: str, topic: str, *, limit: int = 100) -> list[Message]:
        """Return messages that `group` has not acked, at most `limit`, the oldest first. Nothing is
        taken: another member may have them in hand. Those that a filter will pass over are there
        too, until a poll has come to them.
        """
        limit = check_count("limit", limit)
        ranges = self._link.call("unacked", *check_texts(group, topic), limit)
        replayed = partial(self._link.call, "replayed", group, topic)
        return messages_of(ranges, topic, limit, self.read, replayed)

    def queues(self, topic: str | None = None) -> list[QueueInfo]:
        """Return all queues, or those of one topic, with their offsets at this instant."""
        found: list[QueueInfo] = self._link.call("queues", topic)
        return found

    def groups(self, group: str | None = None) -> list[GroupInfo]:
        """Return how far each group is, or one group, in each queue it has taken from."""
        found: list[GroupInfo] = self._link.call("groups", group)
        return found

    # --- the engine itself ----------------------------------------------------------------------

    @property
    def path(self) -> str:
        return self._link.hello.path

    @property
    def options(self) -> Options:
        """Return a copy of the options that the engine was opened with."""
        return replace(self._link.hello.options)

    def sync(self) -> None:
        """Make everything sent so far durable, whatever the sync mode."""
        self._link.call("sync")

    def checkpoint(self) -> None:
        """Write a checkpoint, from which recovery can start."""
        self._link.call("checkpoint")

    def stats(self) -> Stats:
        """Return a snapshot of the engine, which is in another process."""
        found: Stats = self._link.call("stats")
        return found

    def _forked(self) -> None:
        """Go on as another client: this is the child of a fork. The parent's consumers and open
        transactions are the parent's.
        """
        self._link.forked()
        self._members.clear()
        self._manager.forked(Forked(self._where), self._draw(DRAWN_BYTES))
        self._checkers = self._begin_checkers()
        self._databases = None

    def _process_ends(self) -> None:
        """Do nothing: what was acknowledged is durable, or the engine process sees to it."""

    def close(self) -> None:
        """Close the connection. What consumers hold is given back."""
        again = "fmq.connect() connects again"
        self._link.close(Closed(f"{self._where}: the engine is closed; {again}"))
        forget(self)
        self._checkers.stop()
        if self._databases is not None:
            self._databases.stop()

    def __enter__(self) -> RemoteEngine:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<RemoteEngine {self._where}>"
