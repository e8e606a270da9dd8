# Made of fmq/aio/face/delivery.py by tools/make_faces.py: change that file, and run it.
"""The calls of a delivery, and of a list of them: ack, extend, release, reject.

The member of the group that holds the messages carries the calls out.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self

from fmq.arguments.names import check_flag, check_seconds, check_sync, check_text
from fmq.arguments.options import SECONDS_MAX
from fmq.consume.claims.backoff import Retry, check_delay
from fmq.consume.claims.handed import (
    HandedBatch,
    HandedMessage,
    HandedRange,
    is_about,
    range_of,
    settle,
)
from fmq.errors import BadOption, FmqError, LeaseLost
from fmq.errors.notes import is_carried_out

logger = logging.getLogger("fmq.consumers")


class DeliveredRange(HandedRange):
    """Consecutive messages of one queue that are acked or given back together."""

    __slots__ = ()

    def ack(self, *, sync: bool | None = None) -> None:
        """Record that the group has handled the messages. The ack is durable on return, as a send
        is.

        `sync` overrides the engine's option. Raises LeaseLost if the messages were redelivered
        meanwhile.
        """
        if sync is not None:
            check_sync(sync)
        try:
            self._member.ack(self._claim, *self._offsets(), sync)
        except BaseException as error:
            if is_carried_out(error):
                self._settled = True
            raise
        self._settled = True

    def extend(self, seconds: float) -> None:
        """Hold the messages for `seconds` from now on, whatever the lease was. Raises LeaseLost."""
        seconds = check_seconds("seconds", seconds)
        if not 0 < seconds <= SECONDS_MAX:
            raise BadOption(
                f"seconds={seconds:g}: must be more than 0, and at most a hundred years. Nothing "
                "was changed."
            )
        self._member.extend(self._claim, *self._offsets(), seconds)

    def release(self, *, delay: float | None = None, count: bool = True) -> None:
        """Give the messages back: any consumer of the group gets them again after `delay` seconds,
        or, without `delay`, when the consumer's `retry` says so.

        Without `count` this attempt does not count, and the messages wait only if `delay` is given.
        The delay survives a restart. Raises LeaseLost if this consumer does not hold the
        messages any more.
        """
        count = check_flag("count", count)
        if delay is not None:
            wait = check_delay(delay)
        else:
            wait = self._member.retry.delay(self.attempt) if count else 0.0
        try:
            self._member.give_back(self._claim, *self._offsets(), wait, count=count)
        except BaseException as error:
            if is_carried_out(error):
                self._settled = True
            raise
        self._settled = True

    def reject(self, reason: str = "") -> None:
        """Move the messages to the dead letters of the group and ack them, in one append. The
        append is durable on return, and `engine.dead_letters(group)` shows the letters from then
        on.

        Raises LeaseLost if the messages were redelivered meanwhile, TooLarge if a message fills a
        segment so far that nothing can be added to it.
        """
        check_text("reason", reason)
        try:
            self._member.reject(self._claim, *self._offsets(), reason)
        except BaseException as error:
            if is_carried_out(error):
                self._settled = True
            raise
        self._settled = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Ack the messages at the end of the block, or give them back if the block raises. A
        delivery that was acked or given back in the block stays as it is.
        """
        if error is not None:
            give_up(self, error)
        elif not self.is_settled:
            self.ack()


class Delivery(DeliveredRange, HandedMessage):
    """One message that was handed to one consumer. `consumer.poll` makes it."""

    __slots__ = ()


class DeliveryBatch(DeliveredRange, HandedBatch):
    """Consecutive messages of one queue that are acked together. `consumer.poll_batch` makes it.

    The bodies are there at once. Message objects are made when they are asked for.
    """

    __slots__ = ()


class Deliveries(list[Delivery]):
    """Deliveries that are acked or given back together. `consumer.batches` makes it."""

    def __init__(self, consumer: Any, deliveries: Iterable[Delivery]) -> None:
        super().__init__(deliveries)
        self._member = consumer

    def ack(self, *, sync: bool | None = None) -> None:
        """Ack all deliveries that are not settled yet, in one append. Raises LeaseLost, and acks
        none, if one of them was redelivered meanwhile or is in the list twice. A client acks up to
        8,192 ranges of consecutive messages in one append, and more of them in several.
        """
        check_sync(sync)
        left = [each for each in self if not each.is_settled]
        if not left:
            return
        try:
            self._member.ack_all([range_of(each) for each in left], sync)
        except BaseException as error:
            if is_carried_out(error):
                settle(left)
            raise
        settle(left)

    def release(self, *, delay: float | None = None, count: bool = True) -> None:
        """Give back all deliveries that are not settled yet, each as its own `release` does."""
        for each in self:
            if not each.is_settled:
                each.release(delay=delay, count=count)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Ack the deliveries at the end of the block, or give them back if the block raises."""
        if error is None:
            self.ack()
        else:
            for each in self:
                give_up(each, error)


def give_up(delivery: DeliveredRange, error: BaseException) -> None:
    """Give a delivery back because of `error`, unless it was settled already.

    The message waits as its consumer's `retry` says, or becomes a dead letter if that was the last
    attempt, or if its body cannot be decoded. An error that ends the program (an exit, an
    interrupt) counts as no attempt.
    """
    if delivery.is_settled:
        return
    retry: Retry = delivery._member.retry
    try:
        if not isinstance(error, Exception):
            # The handler has not failed: an exit, an interrupt or a cancellation ended it.
            delivery.release(count=False)
        elif retry.is_last(delivery.attempt) or is_about(error, delivery):
            try:
                delivery.reject(f"{type(error).__name__}: {error}")
                return
            except LeaseLost:
                raise
            except FmqError as refusal:
                logger.warning("%r is no dead letter, and is tried again: %s", delivery, refusal)
            delivery.release(delay=retry.longest)
        else:
            delivery.release(delay=retry.delay(delivery.attempt))
    except LeaseLost as lost:
        logger.warning("%s", lost)
