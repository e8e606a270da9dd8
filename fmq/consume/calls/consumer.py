"""A consumer: one member of a group that shares the messages of some topics.

Each message goes to one member. It holds the message until it acks, gives it back or closes, or
until its lease ends. If it was not acked, the next poll of any member redelivers it. An ack is
durable before it returns. It can instead be part of a transaction.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from types import TracebackType
from typing import Any
from weakref import finalize

from fmq.arguments.names import check_seconds
from fmq.basics.message import Message
from fmq.consume.calls.advance import advance
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
from fmq.consume.calls.member import GroupMember
from fmq.consume.calls.take import take
from fmq.consume.claims.delivery import (
    DeliveredRange,
    Deliveries,
    Delivery,
    DeliveryBatch,
)
from fmq.consume.claims.poll import Poll


class Consumer:
    """A member of a group. Safe for threads."""

    def __init__(self, member: GroupMember) -> None:
        self._in_group = member
        self._if_dropped = finalize(self, member.writer.dropped.append, member.leave)
        self._if_dropped.atexit = False
        # What loops have taken ahead and not handed out yet.
        self._aheads: set[Lookahead[Delivery]] = set()
        # What deliveries and loops ask of a consumer. A consumer of another process has the same
        # names.
        self._ack, self._ack_all, self._reject = member.ack, member.ack_all, member.reject
        self._extend, self._give_back, self._check = member.extend, member.give_back, member.check
        self._hold_for_transaction = member.hold_for_transaction
        self._check_held, self._take_back = member.check_held, member.take_back
        self._clock, self._retry, self._draining = member.clock, member.retry, member.draining
        self._lease_seconds, self._count_members = member.lease_seconds, member.count_members

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics whose messages it takes."""
        return self._in_group.topics

    @property
    def group(self) -> str:
        """The group that it is a member of."""
        return self._in_group.named

    @property
    def member(self) -> str:
        """The name of this member in its group."""
        return self._in_group.entry.name

    @property
    def _closed(self) -> bool:
        return self._in_group.is_closed

    # --- polling --------------------------------------------------------------------------------

    def poll(self, *, limit: int = 100, timeout: float = 0.0) -> list[Delivery]:
        """Return up to `limit` deliveries; an empty list if none comes within `timeout` seconds."""
        member = self._in_group
        found = member.find(Poll(member.clock, limit, timeout, counts=True))
        return [] if found is None else member.deliveries(self, *found)

    def poll_batch(self, *, limit: int = 1000, timeout: float = 0.0) -> DeliveryBatch | None:
        """Return up to `limit` messages of one queue, to be acked together.

        Return None if none comes within `timeout` seconds.
        """
        how = {"as_batch": True, "in_one_piece": True, "counts": True}
        found = self._in_group.claim(limit, timeout, **how)
        return None if found is None else self._in_group.delivery_batch(self, *found)

    def take(
        self, *, limit: int = 1, timeout: float = 0.0, sync: bool | None = None
    ) -> list[Message]:
        """Return up to `limit` messages of one queue for good: their ack is durable on return.

        Return an empty list if none comes within `timeout` seconds.
        """
        return take(self._in_group, limit, timeout, sync)

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
        return self._draining.drain(self._stop_taking, self._in_group.in_hand, timeout)

    def _stop_taking(self) -> None:
        """Take nothing new."""
        self._in_group.stop_taking()
        give_back_aheads(self)

    def _next(self, done: Delivery | None = None) -> Delivery | None:
        """Ack `done`, and wait for the next delivery. Return None once the consumer closes or
        drains.
        """
        return next_delivery(self, inf, done)

    def _next_few(self, limit: int) -> list[Delivery]:
        """Wait for the next deliveries. Return an empty list once the consumer closes or drains."""
        return next_deliveries(self, inf, limit)

    def _lookahead(self) -> Lookahead[Any]:
        """Return an object for what one loop takes ahead."""
        how = {"is_ordered": self._in_group.entry.is_ordered}
        return Lookahead(self._clock, self._lease_seconds, self._retry, **how)

    def _advance(self, done: Delivery) -> Delivery | None:
        """Ack `done`, and return the next delivery if there is one at once."""
        return advance(self, done)

    def _fail(self, delivery: DeliveredRange, error: BaseException) -> None:
        fail(delivery, error)

    def close(self) -> None:
        """Leave the group. Messages that are not acked are redelivered to the other members. If the
        consumer was drained, their last attempt does not count.
        """
        leave(self, counts=not self._draining.is_on)

    def __enter__(self) -> Consumer:
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
            leave(self, counts=isinstance(error, Exception))


def member_of(consumer: Consumer) -> GroupMember:
    """Return the GroupMember behind a consumer, for a loop or a server that polls for it."""
    return consumer._in_group


def leave(consumer: Consumer, *, counts: bool) -> None:
    """Close `consumer`. Without `counts`, attempts of messages in hand do not count."""
    consumer._if_dropped.detach()
    consumer._in_group.close(counts=counts)
