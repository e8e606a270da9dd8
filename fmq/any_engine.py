"""Protocols of engines, for programs that take one wherever it is: here, or in another process.

`def report(engine: fmq.AnyEngine)` takes also what only reads, and `def order(engine:
fmq.WritingEngine)` what can write. They are for type checkers; the calls are those of the engines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from math import inf
from types import TracebackType
from typing import Any, Protocol, Self, overload

from fmq.consume.backoff import Retry
from fmq.consume.changing import At
from fmq.consume.dead_letter import DeadLetters
from fmq.consume.delivery import Deliveries, Delivery, DeliveryBatch
from fmq.consume.group import Group
from fmq.consume.handling import Handler
from fmq.consume.membership import COUNT, RAISE, OnChange
from fmq.consume.topic import TopicHandle
from fmq.feedback.answers import Answer, Checker
from fmq.feedback.service import Feedback
from fmq.filters import Filter
from fmq.message import Body, Decision, DelayedReceipt, Mark, Message, Receipt
from fmq.options import Options
from fmq.results import GroupInfo, Outcome, QueueInfo, Settled, UndecidedTransaction
from fmq.stats import Stats
from fmq.store.batch import Batch
from fmq.tx.transaction import Transaction


class AnyEngine(Protocol):
    """What each engine shows: that of `fmq.open`, of `fmq.connect`, and one that only reads."""

    def outcome(self, tx_id: str) -> Outcome:
        """Return whether a transaction is undecided, committed or rolled back, and why."""

    def undecided(self) -> list[UndecidedTransaction]:
        """Return the sealed transactions that wait for their decision, the oldest first."""

    def read(
        self, topic: str, *, queue: int = 0, offset: int = 0, limit: int = 100, timeout: float = 0.0
    ) -> list[Message]:
        """Return the messages of `queue` from `offset`, at most `limit`."""

    def read_batch(
        self,
        topic: str,
        *,
        queue: int = 0,
        offset: int = 0,
        limit: int = 1000,
        timeout: float = 0.0,
    ) -> Batch | None:
        """Return messages as one Batch, which has the bodies; None if there are none."""

    def find(self, topic: str, *, key: str, limit: int = 100) -> list[Message]:
        """Return up to `limit` messages of `topic` with this key, the newest first."""

    def mark(self, name: str) -> Mark | None:
        """Return the mark that a committed transaction has set under `name`."""

    def marks(self, *names: str, prefix: str | None = None) -> dict[str, Mark]:
        """Return those of the marks `names` that are set, and all whose name begins with `prefix`,
        as they are at one instant.
        """

    def queues(self, topic: str | None = None) -> list[QueueInfo]:
        """Return all queues, or those of one topic, with their offsets at this instant."""

    def groups(self, group: str | None = None) -> list[GroupInfo]:
        """Return how far each group is, or one group, in each queue it has taken from."""

    def delayed(self, topic: str | None = None, *, limit: int = 100) -> list[DelayedReceipt]:
        """Return the receipts of up to `limit` records that wait, of all topics or of one, in the
        order in which they are due.
        """

    def topic(self, name: str) -> TopicHandle:
        """Return a topic, to look at it or to change it."""

    def group(self, name: str) -> Group:
        """Return a group, to look at it, or to move or delete it."""

    def dead_letters(self, group: str) -> DeadLetters:
        """Return the dead letters of a group."""

    def offset_at(self, topic: str, queue: int, time: datetime) -> int:
        """Return the offset of the first message of a queue that was sent at `time` or later."""

    def unread(self, group: str, topic: str, *, limit: int = 100) -> list[Message]:
        """Return messages that `group` has not acked, at most `limit`, the oldest first."""

    def stats(self) -> Stats:
        """Return a snapshot of the engine."""

    @property
    def options(self) -> Options:
        """Return a copy of the options that the engine was opened with."""

    @property
    def path(self) -> str: ...

    def close(self) -> None:
        """Release the directory, or leave the process that has it."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...


class WritingEngine(AnyEngine, Protocol):
    """What engines do that write: those of `fmq.open` and of `fmq.connect`."""

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
        """Append one message."""

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
        """Append bodies or Messages, all or none of them."""

    def recall(self, receipt: Receipt) -> bool:
        """Take back messages that wait for their time."""

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
    ) -> Transaction: ...

    def transaction(
        self,
        *,
        tx_id: str | None = None,
        producer: str | None = None,
        check_after: float | None = None,
        bind: Any = None,
    ) -> Transaction:
        """Return a new transaction over any topics; with `bind`, one with the user's database."""
        ...

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

    @property
    def feedback(self) -> Feedback:
        """Return the feedback service, where producers take questions and answer them."""

    def checker(self, producer: str) -> Callable[[Checker], Checker]:
        """Register the decorated function as a checker for the transactions of `producer`."""

    def settle(self, *, timeout: float = 30.0) -> Settled:
        """Ask the registered checkers about all that is undecided now."""

    def send_in_transaction(
        self,
        messages: Iterable[tuple[str, Body | Message]],
        local: Callable[[Transaction], Answer | None],
        *,
        producer: str | None = None,
        tx_id: str | None = None,
        check_after: float | None = None,
    ) -> Outcome:
        """Prepare `messages`, pairs of topic and body, call `local`, and decide as it answers."""

    def consumer(
        self,
        topics: str | Iterable[str],
        *,
        group: str,
        lease_seconds: float | None = None,
        member: str | None = None,
        strategy: str | None = None,
        ordered: bool = False,
        strict: bool = False,
        on_change: OnChange | None = None,
        filter: Filter | None = None,
        broadcast: bool = False,
        retry: Retry | None = None,
        expired: str = COUNT,
        damaged: str = RAISE,
    ) -> AnyConsumer:
        """Return a member of `group`, which shares the messages of `topics`."""

    def create_topic(
        self, name: str, *, queues: int | None = None, retain_seconds: float | None = None
    ) -> TopicHandle:
        """Make a topic before its first message, once: else TopicExists is raised."""

    def create_group(
        self, name: str, topic: str, *, at: At = "earliest", filter: Filter | None = None
    ) -> None:
        """Make a group of `topic` before its first consumer, once: else GroupExists is raised."""

    def sync(self) -> None:
        """Make everything sent so far durable, whatever the sync mode."""

    def checkpoint(self) -> None:
        """Write a checkpoint, from which recovery can start."""


class AnyConsumer(Protocol):
    """A member of a group, of an engine here or in another process."""

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics whose messages it shares."""

    @property
    def group(self) -> str:
        """The group that it is a member of."""

    @property
    def member(self) -> str:
        """The name of this member in its group."""

    def poll(self, *, limit: int = 100, timeout: float = 0.0) -> list[Delivery]:
        """Return up to `limit` deliveries, or none if none comes within `timeout` seconds."""

    def poll_batch(self, *, limit: int = 1000, timeout: float = 0.0) -> DeliveryBatch | None:
        """Return up to `limit` messages of one queue, to be acked together."""

    def take(
        self, *, limit: int = 1, timeout: float = 0.0, sync: bool | None = None
    ) -> list[Message]:
        """Return up to `limit` messages of one queue for good: their ack is durable."""

    def __iter__(self) -> Iterator[Delivery]:
        """Yield deliveries one by one, and wait for the next."""

    def batches(self, max_size: int = 100, max_wait: float = 1.0) -> Iterator[Deliveries]:
        """Yield up to `max_size` deliveries at a time, or those that have come within `max_wait`
        seconds of the first.
        """

    def run(self, handler: Handler, *, workers: int = 1) -> None:
        """Give each delivery to `handler`, in as many threads as there are `workers`."""

    def drain(self, *, timeout: float = inf) -> bool:
        """Take nothing new, and wait until nothing is in hand."""

    def close(self) -> None:
        """Leave the group. What is not acked is redelivered to the other members."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...
