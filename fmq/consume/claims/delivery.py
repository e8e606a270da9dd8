"""What a poll hands to its caller: one message, or many of one queue, to be acked or given back.

A delivery does not know whether its member still holds the message. The consumer checks that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from types import TracebackType
from typing import Any, Self

from fmq.arguments.names import check_flag, check_seconds, check_text
from fmq.arguments.options import SECONDS_MAX
from fmq.basics.message import Message
from fmq.consume.claims.backoff import Retry, check_delay
from fmq.errors import BadOption, LeaseLost
from fmq.store.bytes.kinds import AckRange
from fmq.store.reading.batch import Batch


class DeliveredRange:
    """Consecutive messages of one queue that are acked or given back together."""

    __slots__ = ("_attempt", "_claim", "_consumer", "_settled")

    _attempt: int
    _claim: Any  # a Claim of this engine, or a number that stands for one in another process
    _consumer: Any  # the Consumer, which is not imported: its module imports this one

    @property
    def topic(self) -> str:
        return self._claim.queue.topic  # type: ignore[no-any-return]

    @property
    def queue(self) -> int:
        return self._claim.queue.number  # type: ignore[no-any-return]

    @property
    def offset(self) -> int:
        """The offset of the first message."""
        return self._offsets()[0]

    def _offsets(self) -> tuple[int, int]:
        """Return the offset of the first message, and the offset after the last one."""
        raise NotImplementedError

    def ack(self, *, sync: bool | None = None) -> None:
        """Record that the group has handled the messages. The ack is durable on return, as a send
        is.

        `sync` overrides the engine's option. Raises LeaseLost if the messages were redelivered
        meanwhile.
        """
        self._consumer._ack(self._claim, *self._offsets(), sync)
        self._settled = True

    @property
    def is_settled(self) -> bool:
        """True once the delivery was acked, given back or rejected, or is part of a transaction."""
        return getattr(self, "_settled", False)

    def extend(self, seconds: float) -> None:
        """Hold the messages for `seconds` from now on, whatever the lease was. Raises LeaseLost."""
        seconds = check_seconds("seconds", seconds)
        if not 0 < seconds <= SECONDS_MAX:
            raise BadOption(
                f"seconds={seconds:g}: must be more than 0, and at most a hundred years. Nothing "
                "was changed."
            )
        self._consumer._extend(self._claim, *self._offsets(), seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Ack at the end of the block, or give back if the block raises, unless the block did so
        itself.
        """
        if error is not None:
            self._consumer._fail(self, error)
        elif not self.is_settled:
            self.ack()

    @property
    def attempt(self) -> int:
        """How often the group has tried it, this time included: 1 is the first attempt."""
        return self._attempt

    def release(self, *, delay: float | None = None, count: bool = True) -> None:
        """Give the messages back: any consumer of the group gets them again after `delay` seconds,
        or, without `delay`, when the consumer's `retry` says so.

        Without `count` this attempt does not count, and the messages wait only if `delay` is given.
        The delay survives a restart. Raises LeaseLost if this consumer does not hold them any more.
        """
        count = check_flag("count", count)
        wait = self._wait(delay, count=count)
        self._consumer._give_back(self._claim, *self._offsets(), wait, count=count)
        self._settled = True

    def _wait(self, delay: float | None, *, count: bool) -> float:
        """Return how many seconds the messages wait until they are handed out again."""
        if delay is not None:
            return check_delay(delay)
        retry: Retry = self._consumer._retry
        return retry.delay(self.attempt) if count else 0.0

    def reject(self, reason: str = "") -> None:
        """Move the messages to the dead letters of the group and ack them, in one append. It is
        durable on return, and `engine.dead_letters(group)` shows them from then on.

        Raises LeaseLost if they were redelivered meanwhile, TooLarge if a message is so large that
        the note why it failed does not fit into a segment beside it.
        """
        check_text("reason", reason)
        self._consumer._reject(self._claim, *self._offsets(), reason)
        self._settled = True

    def _hold_for_transaction(self, keeper: object, holder: object) -> AckRange:
        """Pass the hold to `holder`, without a deadline. Return the ack that the transaction has to
        write.
        """
        what = self._claim, *self._offsets()
        ack: AckRange = self._consumer._hold_for_transaction(*what, keeper, holder)
        self._settled = True
        return ack

    def _check_held_for_transaction(self, holder: object) -> None:
        """Raise LeaseLost if `holder` does not hold the messages any more. The caller holds the
        engine's lock.
        """
        self._consumer._check_held(self._claim, *self._offsets(), holder)

    def _end_hold_for_transaction(self, holder: object) -> None:
        """Pass the hold back from `holder`, which does not ack. The caller holds the
        engine's lock.
        """
        self._consumer._take_back(self._claim, *self._offsets(), holder)
        self._settled = False


class Delivery(DeliveredRange):
    """One message that was handed to one consumer. `consumer.poll` makes it."""

    __slots__ = ("_message",)

    def __init__(
        self,
        consumer: Any = None,
        claim: Any = None,
        message: Message | None = None,
        attempt: int = 1,
    ) -> None:
        if claim is None or message is None:
            raise TypeError("a Delivery is what consumer.poll gives, and cannot be made")
        self._consumer = consumer
        self._claim = claim
        self._message = message
        self._attempt = attempt

    @property
    def message(self) -> Message:
        return self._message

    def _offsets(self) -> tuple[int, int]:
        first = self._message.offset
        assert first is not None, "the message was read"
        return first, first + 1

    @property
    def body(self) -> bytes:
        return self._message.body

    @property
    def key(self) -> str | None:
        return self._message.key

    @property
    def tag(self) -> str | None:
        return self._message.tag

    @property
    def headers(self) -> Mapping[str, str]:
        return self._message.headers or {}

    @property
    def message_id(self) -> str | None:
        return self._message.message_id

    @property
    def priority(self) -> int | None:
        return self._message.priority

    @property
    def expires_at(self) -> datetime | None:
        return self._message.expires_at

    @property
    def time(self) -> datetime | None:
        return self._message.time

    def __repr__(self) -> str:
        return f"<Delivery {self.topic}/{self.queue} offset {self.offset}>"


class DeliveryBatch(DeliveredRange):
    """Consecutive messages of one queue that are acked together. `consumer.poll_batch` makes it.

    The bodies are there at once. Message objects are made when they are asked for.
    """

    __slots__ = ("_batch",)

    def __init__(
        self,
        consumer: Any = None,
        claim: Any = None,
        batch: Batch | None = None,
        attempt: int = 1,
    ) -> None:
        if claim is None or batch is None:
            raise TypeError("a DeliveryBatch is what consumer.poll_batch gives, and cannot be made")
        self._consumer = consumer
        self._claim = claim
        self._batch = batch
        self._attempt = attempt

    def _offsets(self) -> tuple[int, int]:
        return self._batch.offset, self._batch.next

    @property
    def bodies(self) -> tuple[bytes, ...]:
        return self._batch.bodies

    @property
    def messages(self) -> list[Message]:
        return self._batch.messages

    def __len__(self) -> int:
        return len(self._batch.bodies)

    def __repr__(self) -> str:
        return f"<DeliveryBatch {self.topic}/{self.queue} offset {self.offset}, {len(self)}>"


class ReplayedDelivery(Delivery):
    """A dead letter that was replayed. It shows the topic, queue and offset where the message
    failed.
    """

    __slots__ = ("_place",)

    def __init__(
        self, consumer: Any, claim: Any, message: Message, attempt: int, place: int
    ) -> None:
        """`place` is the offset at which the replayed message lies now."""
        super().__init__(consumer, claim, message, attempt)
        self._place = place

    @property
    def topic(self) -> str:
        return self._message.topic or ""

    @property
    def queue(self) -> int:
        return self._message.queue or 0

    @property
    def offset(self) -> int:
        return self._message.offset or 0

    def _offsets(self) -> tuple[int, int]:
        return self._place, self._place + 1


class ReplayedBatch(DeliveryBatch):
    """Dead letters that were replayed. They show where the messages failed, so offsets may have
    gaps.
    """

    __slots__ = ("_shown",)

    def __init__(
        self, consumer: Any, claim: Any, batch: Batch, attempt: int, messages: list[Message]
    ) -> None:
        super().__init__(consumer, claim, batch, attempt)
        self._shown = messages

    @property
    def topic(self) -> str:
        return self._shown[0].topic or ""

    @property
    def queue(self) -> int:
        return self._shown[0].queue or 0

    @property
    def offset(self) -> int:
        return self._shown[0].offset or 0

    @property
    def messages(self) -> list[Message]:
        return self._shown


class Deliveries(list[Delivery]):
    """Deliveries that are acked or given back together. `consumer.batches` makes it."""

    def __init__(self, consumer: Any, deliveries: Iterable[Delivery]) -> None:
        super().__init__(deliveries)
        self._consumer = consumer

    def ack(self, *, sync: bool | None = None) -> None:
        """Ack all deliveries that are not settled yet, in one append. Raises LeaseLost, and acks
        none, if one of them was redelivered meanwhile or is in the list twice. A client acks up to
        8,192 ranges of consecutive messages in one append, and more of them in several.
        """
        left = [each for each in self if not each.is_settled]
        if left:
            self._consumer._ack_all(left, sync)
            for each in left:
                each._settled = True

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
                each._consumer._fail(each, error)


def lost(topic: str, queue: int, offset: int, lease_seconds: float) -> LeaseLost:
    """Return the error for a message that its consumer does not hold any more."""
    return LeaseLost(
        f"{topic}/{queue} offset {offset}: no longer this consumer's. "
        "It was acked before, given back, is part of a transaction, or its lease of "
        f"{lease_seconds:g} s ended and it was redelivered. Nothing was changed; "
        "if handling takes longer, ask for a longer lease."
    )


def of_another_engine(topic: str, queue: int, offset: int) -> BadOption:
    """Return the error for a transaction that is to ack a message of another engine."""
    return BadOption(
        f"{topic}/{queue} offset {offset}: delivered by another "
        "engine than the transaction's, which cannot ack it there. Nothing was changed; "
        "consume and produce with one engine, or ack the delivery by itself."
    )


def held_by(delivery: DeliveredRange) -> tuple[Any, Any, int, int]:
    """Return the consumer and the claim of a delivery, its first offset and the offset after its
    last one.
    """
    return delivery._consumer, delivery._claim, *delivery._offsets()
