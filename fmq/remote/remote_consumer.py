"""A consumer of a client. The engine process keeps its group."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from math import inf, isnan
from types import TracebackType
from typing import Any, NamedTuple
from weakref import finalize

from fmq.allocation.transfer import Said
from fmq.arguments.names import check_count, check_seconds
from fmq.basics.message import Message
from fmq.consume.calls.advance import note_handled
from fmq.consume.calls.handlers import (
    Handler,
    batches,
    each_delivery,
    fail,
    give_back_aheads,
    next_deliveries,
    next_delivery,
    run,
)
from fmq.consume.calls.lookahead import Lookahead
from fmq.consume.claims.backoff import Retry
from fmq.consume.claims.delivery import (
    DeliveredRange,
    Deliveries,
    Delivery,
    DeliveryBatch,
    ReplayedBatch,
    ReplayedDelivery,
)
from fmq.consume.claims.membership import COUNT, RAISE, OnChange, OwnedQueue
from fmq.errors import FmqError, LeaseLost
from fmq.remote.link import Link
from fmq.remote.remote_manager import RemoteKeeper
from fmq.remote.remote_settlement import RemoteSettler
from fmq.store.journal.commit_queue import waits
from fmq.store.reading.batch import Batch
from fmq.wire.batches import ReplayedRead, decode_batch
from fmq.wire.claims import (
    ADVANCED,
    CLAIM,
    NEWS,
    PIECE,
    AckAsked,
    encode_ack,
    encode_take,
)
from fmq.wire.frames import Op
from fmq.wire.values import decode_values, encode_values

POLL_SECONDS = 60.0  # one poll of a loop waits this long


class RemoteQueue(NamedTuple):
    """A queue as a delivery names it: topic and number."""

    topic: str
    number: int


class RemoteClaim:
    """The messages that one poll has brought. The engine process knows them by a number."""

    __slots__ = ("attempt", "done", "end", "first", "held", "number", "queue", "spent", "until")

    def __init__(
        self, number: int, queue: RemoteQueue, first: int, end: int, attempt: int, until: float
    ) -> None:
        self.attempt = attempt
        self.until = until  # the end of its lease, by the clock of the client
        self.number = number
        self.queue = queue
        self.first = first
        self.end = end
        # Offsets that were acked or given back, or that are in a transaction.
        self.spent: set[int] = set()
        # First and end -> the object that holds the range for a transaction.
        self.held: dict[tuple[int, int], object] = {}
        # Spent offsets that the engine process has confirmed.
        self.done: set[int] = set()


class Membership:
    """A member of a group, with all that a new engine process has to know about it."""

    def __init__(
        self,
        topics: tuple[str, ...],
        group: str,
        lease_seconds: float,
        name: str,
        strategy: Said | None,
        wanted: str | None,
        retry: Retry,
        ordered: bool,
        strict: bool,
        on_change: OnChange | None,
        broadcast: bool = False,
        expired: str = COUNT,
        damaged: str = RAISE,
    ) -> None:
        self.topics = topics
        self.group = group
        self.lease_seconds = lease_seconds
        self.name = name
        self.on_change = on_change
        self.retry = retry
        self.ordered = ordered
        told = on_change is not None
        how = ordered, strict, told, broadcast, expired, damaged
        self._how = strategy, wanted, retry.said(), *how
        # Claims that still have messages to ack, by number.
        self.claims: dict[int, RemoteClaim] = {}

    def said(self) -> bytes:
        """Return the payload of a JOIN."""
        claims = []
        for claim in self.claims.values():
            at = claim.first
            for offset in (*sorted(claim.done), claim.end):
                if at < offset:
                    claims.append([claim.number, *claim.queue, at, offset])
                at = offset + 1
        who = [*self.topics], self.group, self.lease_seconds
        return encode_values([*who, claims, self.name, *self._how])


class RemoteConsumer(RemoteSettler):
    """A member of a group. Safe for threads."""

    def __init__(
        self,
        link: Link,
        keeper: RemoteKeeper,
        members: dict[int, Membership],
        handle: int,
        membership: Membership,
    ) -> None:
        """`members` are all members of the client, by handle."""
        super().__init__(link, keeper, handle, membership)
        self._members = members
        self._retry = membership.retry
        link.ask(Op.JOIN, membership.said(), handle=handle)
        members[handle] = membership
        leave = partial(_leave, link, members, handle)
        self._if_dropped = finalize(self, keeper.dropped.append, leave)
        self._if_dropped.atexit = False

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics whose messages it takes."""
        return self._membership.topics

    @property
    def group(self) -> str:
        """The group that it is a member of."""
        return self._membership.group

    @property
    def member(self) -> str:
        """The name of this member in its group."""
        return self._membership.name

    def poll(self, *, limit: int = 100, timeout: float = 0.0) -> list[Delivery]:
        """Return up to `limit` deliveries; an empty list if none comes within `timeout` seconds."""
        return [
            delivery
            for claim, batch in self._poll(limit, timeout, in_one_piece=False)
            for delivery in self._deliveries(claim, batch)
        ]

    def _deliveries(self, claim: RemoteClaim, batch: Batch) -> list[Delivery]:
        if isinstance(batch, ReplayedRead):
            places = enumerate(batch.shown, batch.offset)
            attempt = claim.attempt
            return [ReplayedDelivery(self, claim, each, attempt, at) for at, each in places]
        return [Delivery(self, claim, message, claim.attempt) for message in batch.messages]

    def poll_batch(self, *, limit: int = 1000, timeout: float = 0.0) -> DeliveryBatch | None:
        """Return up to `limit` messages of one queue, to be acked together.

        Return None if none comes within `timeout` seconds.
        """
        found = self._poll(limit, timeout, in_one_piece=True)
        return self._delivery_batch(*found[0]) if found else None

    def _delivery_batch(self, claim: RemoteClaim, batch: Batch) -> DeliveryBatch:
        if isinstance(batch, ReplayedRead):
            return ReplayedBatch(self, claim, batch, claim.attempt, batch.shown)
        return DeliveryBatch(self, claim, batch, claim.attempt)

    def take(
        self, *, limit: int = 1, timeout: float = 0.0, sync: bool | None = None
    ) -> list[Message]:
        """Return up to `limit` messages of one queue for good: their ack is durable on return.

        Return an empty list if none comes within `timeout` seconds.
        """
        limit, timeout = check_count("limit", limit), check_seconds("timeout", timeout)
        waits(sync, by_default=True)  # raises TypeError for a wrong `sync`
        self._check()
        self._keeper.change(_nothing)
        while True:
            answer = self._link.write(Op.TAKE, encode_take, limit, sync, handle=self._handle)
            if not answer:
                break
            if CLAIM.unpack_from(answer) != (NEWS,):
                return [each for batch in _batches(answer) for each in batch.messages]
            self._tell(*decode_values(answer[CLAIM.size :]))
        if timeout <= 0:
            return []
        batch = self.poll_batch(limit=limit, timeout=timeout)
        if batch is None:
            return []
        batch.ack(sync=sync)
        return batch.messages

    def __iter__(self) -> Iterator[Delivery]:
        """Yield deliveries one by one, and wait for each next one. The loop ends when the consumer
        closes or drains. For a quick program it reads ahead, at most what the program handles in a
        tenth of a second.
        """
        return each_delivery(self)

    def batches(self, max_size: int = 100, max_wait: float = 1.0) -> Iterator[Deliveries]:
        """Yield up to `max_size` deliveries at a time, or fewer: those that have come within
        `max_wait` seconds of the first. The loop ends when the consumer closes or drains.
        """
        return batches(self, max_size, max_wait)

    def run(self, handler: Handler, *, workers: int = 1) -> None:
        """Give each delivery to `handler`, in `workers` threads.

        A delivery is acked when the handler returns, and its lease is extended until then. If the
        handler raises, the delivery is tried again as `retry` says. The call returns when the
        consumer closes or drains; in the main thread SIGTERM drains it. Deliveries in hand are
        handled first.
        """
        run(self, handler, workers)

    def drain(self, *, timeout: float = inf) -> bool:
        """Take nothing new, and wait until nothing is in hand. Return False if that takes longer
        than `timeout` seconds. From now on loops and `run` end, and polls return nothing.

        The call does not wait inside of a loop or a handler, nor in a signal handler that
        interrupts a call of fmq.
        """
        timeout = check_seconds("timeout", timeout)
        self._check()
        return self._draining.drain(self._stop_taking, self._in_hand, timeout)

    def _in_hand(self) -> tuple[int, float]:
        """Return how many messages are in hand, and when the first of their leases ends."""
        now, count, first_end = self._clock.monotonic(), 0, inf
        for claim in [*self._membership.claims.values()]:
            left = claim.end - claim.first - len(claim.spent)
            if left and claim.until > now:
                count += left
                first_end = min(first_end, claim.until)
        return count, first_end

    def _stop_taking(self) -> None:
        """Take nothing new from now on."""
        self._draining.is_on = True
        self._link.ask(Op.DRAIN, b"", handle=self._handle)
        give_back_aheads(self)

    def _next(self, done: Delivery | None = None) -> Delivery | None:
        """Ack `done`, and wait for the next delivery. Return None once the consumer closes or
        drains.
        """
        return next_delivery(self, POLL_SECONDS, done)

    def _next_few(self, limit: int) -> list[Delivery]:
        """Wait for the next deliveries. Return an empty list once the consumer closes or drains."""
        return next_deliveries(self, POLL_SECONDS, limit)

    def _lookahead(self) -> Lookahead[Any]:
        """Return an object for what one loop takes ahead."""
        how = {"is_ordered": self._membership.ordered}
        return Lookahead(self._clock, self._lease_seconds, self._retry, **how)

    def _count_members(self) -> int:
        return len(self._link.call("members", self.group))

    def _advance(self, done: Delivery) -> Delivery | None:
        """Ack `done`, and return the next delivery if there is one at once. One answer
        brings both.
        """
        self._check()
        claim, (first, end) = done._claim, done._offsets()
        said = encode_ack(AckAsked(claim.number, first, end, None, *claim.queue))
        try:
            answer = self._ask(Op.ADVANCE, said, claim, first, end)
        except LeaseLost:
            note_handled(done, is_acked=False)
            return None
        note_handled(done, is_acked=bool(answer[0]))
        found = self._pieces(answer[ADVANCED.size :])
        return self._deliveries(*found[0])[0] if found else None

    def _fail(self, delivery: DeliveredRange, error: BaseException) -> None:
        fail(delivery, error)

    def _poll(
        self, limit: int, timeout: float, *, in_one_piece: bool
    ) -> list[tuple[RemoteClaim, Batch]]:
        if type(limit) is not int or limit < 1:
            limit = check_count("limit", limit)
        if type(timeout) is not float or isnan(timeout):
            timeout = check_seconds("timeout", timeout)
        self._check()
        self._keeper.change(_nothing)
        while not self._draining.is_on:
            said = encode_values([limit, timeout, in_one_piece])
            found = self._answered(
                self._link.ask(Op.POLL, said, handle=self._handle, patience=timeout)
            )
            if found is not None:
                return found
        return []

    def _answered(self, answer: bytes) -> list[tuple[RemoteClaim, Batch]] | None:
        """Return the pieces that a poll has brought. If the answer is news, tell the program and
        return None.
        """
        if not answer or CLAIM.unpack_from(answer) != (NEWS,):
            return self._pieces(answer)
        self._tell(*decode_values(answer[CLAIM.size :]))
        return None

    def _pieces(self, answer: bytes) -> list[tuple[RemoteClaim, Batch]]:
        """Return the pieces of a poll's answer. Note a claim for each."""
        found, at = [], 0
        until = self._clock.monotonic() + self._lease_seconds
        while at < len(answer):
            number, attempt, size = PIECE.unpack_from(answer, at)
            at += PIECE.size
            is_last = at + size == len(answer)
            batch = decode_batch(answer, at) if is_last else decode_batch(answer[at : at + size])
            at += size
            topic = batch.place if isinstance(batch, ReplayedRead) else batch.topic
            queue = RemoteQueue(topic, batch.queue)
            claim = RemoteClaim(number, queue, batch.offset, batch.next, attempt, until)
            self._membership.claims[number] = claim
            found.append((claim, batch))
        return found

    def _tell(self, lost: list[list[Any]], gained: list[list[Any]]) -> None:
        """Tell the program which queues the member has lost, and which it has gained."""
        on_change = self._membership.on_change
        assert on_change is not None, "else there is no news"
        on_change([OwnedQueue(*each) for each in lost], [OwnedQueue(*each) for each in gained])

    def close(self) -> None:
        """Leave the group. Messages that are not acked are redelivered to the other members. If the
        consumer was drained, their last attempt does not count.
        """
        self._close(counts=not self._draining.is_on)

    def _close(self, *, counts: bool) -> None:
        """Leave the group. Without `counts`, attempts of messages in hand do not count."""
        if not self._closed:
            self._closed = True
            self._draining.changed()
            self._if_dropped.detach()
            _leave(self._link, self._members, self._handle, counts=counts)

    def __enter__(self) -> RemoteConsumer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Leave the group as `close` does. If an exit or an interrupt ends the block, attempts of
        messages in hand do not count.
        """
        if error is None:
            self.close()
        else:
            self._close(counts=isinstance(error, Exception))


def _leave(link: Link, members: dict[int, Membership], handle: int, *, counts: bool = True) -> None:
    """Give back what a consumer holds. Errors are not raised: an engine process that is gone holds
    nothing.
    """
    if members.pop(handle, None) is not None:
        with suppress(FmqError):
            link.ask(Op.LEAVE, encode_values([counts]), handle=handle)


def _batches(answer: bytes) -> Iterator[Batch]:
    """Yield the batches in the answer to a TAKE."""
    at = 0
    while at < len(answer):
        *_, size = PIECE.unpack_from(answer, at)
        at += PIECE.size
        yield decode_batch(answer[at : at + size])
        at += size


def _nothing() -> None:
    pass
