"""A consumer: one member of a group that shares the messages of some topics.

Every message goes to one member, which holds it until it acks, closes, or its lease ends. Then the
next poll of any member redelivers it. An ack is durable before it returns, and can be part of a
transaction instead.
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
        self._aheads: set[Lookahead[Delivery]] = set()  # what loops have taken
        # What deliveries and loops ask of a consumer, of this process or of another one.
        self._ack, self._ack_all, self._reject = member.ack, member.ack_all, member.reject
        self._extend, self._give_back, self._check = member.extend, member.give_back, member.check
        self._hold_for_transaction = member.hold_for_transaction
        self._check_held, self._take_back = member.check_held, member.take_back
        self._clock, self._retry, self._draining = member.clock, member.retry, member.draining
        self._lease_seconds, self._count_members = member.lease_seconds, member.count_members

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics whose messages it shares."""
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
        """Return up to `limit` deliveries, or none if none comes within `timeout` seconds."""
        member = self._in_group
        found = member.find(Poll(member.clock, limit, timeout, counts=True))
        return [] if found is None else member.deliveries(self, *found)

    def poll_batch(self, *, limit: int = 1000, timeout: float = 0.0) -> DeliveryBatch | None:
        """Return up to `limit` messages of one queue, to be acked together.

        Return None if there is none for `timeout` seconds.
        """
        how = {"as_batch": True, "in_one_piece": True, "counts": True}
        found = self._in_group.claim(limit, timeout, **how)
        return None if found is None else self._in_group.delivery_batch(self, *found)

    def take(
        self, *, limit: int = 1, timeout: float = 0.0, sync: bool | None = None
    ) -> list[Message]:
        """Return up to `limit` messages of one queue for good: their ack is durable.

        Return none if none comes within `timeout` seconds.
        """
        return take(self._in_group, limit, timeout, sync)

    def __iter__(self) -> Iterator[Delivery]:
        """Yield deliveries one by one, and wait for the next. It ends when the consumer closes or
        drains. A program that is quick is read ahead for, by what it handles in a tenth of a
        second.
        """
        return each_delivery(self)

    def batches(self, max_size: int = 100, max_wait: float = 1.0) -> Iterator[Deliveries]:
        """Yield up to `max_size` deliveries at a time, or those that have come within `max_wait`
        seconds of the first. It ends when the consumer closes or drains.
        """
        return batches(self, max_size, max_wait)

    def run(self, handler: Handler, *, workers: int = 1) -> None:
        """Give each delivery to `handler`, in as many threads as there are `workers`.

        It is acked when the handler returns, and its lease is extended until then. If the handler
        raises, it waits as `retry` says. Returns when the consumer closes or drains; in the main
        thread SIGTERM drains it. What is in hand is handled before.
        """
        run(self, handler, workers)

    def drain(self, *, timeout: float = inf) -> bool:
        """Take nothing new, and wait until nothing is in hand; return False after `timeout`
        seconds. Loops and `run` end, and polls return nothing from now on.

        Inside of a loop or a handler, and in a signal handler that interrupts a call of fmq, it
        does not wait.
        """
        timeout = check_seconds("timeout", timeout)
        self._check()
        return self._draining.drain(self._stop_taking, self._in_group.in_hand, timeout)

    def _stop_taking(self) -> None:
        """Take nothing new."""
        self._in_group.stop_taking()
        give_back_aheads(self)

    def _next(self, done: Delivery | None = None) -> Delivery | None:
        """Ack `done`, and return the next delivery; None once the consumer closes or drains."""
        return next_delivery(self, inf, done)

    def _next_few(self, limit: int) -> list[Delivery]:
        """Return the next deliveries; none once the consumer closes or drains."""
        return next_deliveries(self, inf, limit)

    def _lookahead(self) -> Lookahead[Any]:
        """Return what a loop takes ahead."""
        how = {"is_ordered": self._in_group.entry.is_ordered}
        return Lookahead(self._clock, self._lease_seconds, self._retry, **how)

    def _advance(self, done: Delivery) -> Delivery | None:
        """Ack `done`, and return the next delivery if there is one now."""
        return advance(self, done)

    def _fail(self, delivery: DeliveredRange, error: BaseException) -> None:
        fail(delivery, error)

    def close(self) -> None:
        """Leave the group. What is not acked is redelivered to the other members. If the consumer
        was drained, its last attempt does not count.
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
        """Leave the group as `close` does. If an exit or an interrupt ends the block, the attempts
        of what is in hand do not count.
        """
        if error is None:
            self.close()
        else:
            leave(self, counts=isinstance(error, Exception))


def member_of(consumer: Consumer) -> GroupMember:
    """Return what a consumer is in its group, for a loop or a server that takes for it."""
    return consumer._in_group


def leave(consumer: Consumer, *, counts: bool) -> None:
    """Close `consumer`. Without `counts` the attempts of what is in hand do not count."""
    consumer._if_dropped.detach()
    consumer._in_group.close(counts=counts)
