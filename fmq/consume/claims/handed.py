"""The data of a delivery, without its calls: one message, or many of one queue.

A delivery names the range that is acked or given back, and the member that holds it. That member
knows whether the range may still be acked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, TypeVar

from fmq.basics.message import Message
from fmq.codecs.codec import value_of
from fmq.consume.claims.ticket import ticket_text
from fmq.errors import BadBody, BadOption, LeaseLost
from fmq.store.bytes.kinds import AckRange
from fmq.store.reading.batch import Batch

C = TypeVar("C")
OwnedRange = tuple[C, int, int]
"""A claim, the offset of the first message, and the one after the last."""


class HandedRange:
    """Consecutive messages of one queue that are acked or given back together."""

    __slots__ = ("_attempt", "_claim", "_member", "_settled")

    _attempt: int
    _claim: Any  # a Claim of this engine, or one of another process
    _member: Any  # the member with these messages: a blocking one, or that of a loop

    def _offsets(self) -> tuple[int, int]:
        """Return the offset of the first message, and the offset after the last one."""
        raise NotImplementedError

    @property
    def is_settled(self) -> bool:
        """True once the delivery was acked, given back or rejected, or is part of a transaction."""
        return getattr(self, "_settled", False)

    @property
    def attempt(self) -> int:
        """The number of times that the group has tried the messages: 1 at the first attempt."""
        return self._attempt

    def _hold_for_transaction(self, keeper: object, holder: object) -> AckRange:
        """Pass the hold to `holder`, without a deadline. Return the ack that the transaction has to
        write.
        """
        what = self._claim, *self._offsets()
        ack: AckRange = self._member.blocking.hold_for_transaction(*what, keeper, holder)
        self._settled = True
        return ack

    def _check_held_for_transaction(self, holder: object) -> None:
        """Raise LeaseLost if `holder` does not hold the messages any more. The caller holds the
        engine's lock.
        """
        self._member.blocking.check_held(self._claim, *self._offsets(), holder)

    def _end_hold_for_transaction(self, holder: object) -> None:
        """Pass the hold back from `holder`, which does not ack. The caller holds the
        engine's lock.
        """
        self._member.blocking.take_back(self._claim, *self._offsets(), holder)
        self._settled = False


class HandedMessage(HandedRange):
    """One message handed to one consumer."""

    __slots__ = ("_first", "_message", "_value")

    _value: Any  # set at its first access

    def __init__(
        self,
        consumer: Any = None,
        claim: Any = None,
        message: Message | None = None,
        attempt: int = 1,
        first: int | None = None,
    ) -> None:
        """`first` is the offset of the message in its queue. A dead letter that was replayed is
        shown with the topic and offset where it failed, so `first` may differ from those.
        """
        if claim is None or message is None or first is None:
            raise TypeError("a Delivery is what consumer.poll gives, and cannot be made")
        self._member = consumer
        self._claim = claim
        self._message = message
        self._attempt = attempt
        self._first = first

    def _offsets(self) -> tuple[int, int]:
        first = self._first
        return first, first + 1

    @property
    def ticket(self) -> str:
        """A text by which any process can settle the message later: `group.ack_ticket`,
        `release_ticket`, `reject_ticket`. It is good until the group hands the message out again.
        """
        queue = self._claim.queue
        where = self._member.named, queue.topic, queue.number
        return ticket_text(*where, self._first, self._attempt)

    @property
    def message(self) -> Message:
        return self._message

    @property
    def topic(self) -> str:
        return self._message.topic or ""

    @property
    def queue(self) -> int:
        return self._message.queue or 0

    @property
    def offset(self) -> int:
        """The offset of the message."""
        return self._message.offset or 0

    @property
    def body(self) -> bytes:
        return self._message.body

    @property
    def value(self) -> Any:
        """The value of the body, which the codec of the topic decodes at the first access.

        Raises BadBody if it cannot, and BadOption if no codec was given to the engine. A consumer's
        `run`, or the end of a `with` block, makes a dead letter of a message whose BadBody reaches
        it.
        """
        try:
            return self._value
        except AttributeError:
            self._value = found = value_of(getattr(self._member, "codecs", {}), self._message)
            return found

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


class HandedBatch(HandedRange):
    """Consecutive messages of one queue, acked together.

    The bodies are there at once. Message objects are made when they are asked for.
    """

    __slots__ = ("_batch", "_shown")

    def __init__(
        self,
        consumer: Any = None,
        claim: Any = None,
        batch: Batch | None = None,
        attempt: int = 1,
        shown: list[Message] | None = None,
    ) -> None:
        """`shown` are dead letters that were replayed, with the topic and offsets where they
        failed. Those offsets may have gaps.
        """
        if claim is None or batch is None:
            raise TypeError("a DeliveryBatch is what consumer.poll_batch gives, and cannot be made")
        self._member = consumer
        self._claim = claim
        self._batch = batch
        self._attempt = attempt
        self._shown = shown

    def _offsets(self) -> tuple[int, int]:
        return self._batch.offset, self._batch.next

    @property
    def topic(self) -> str:
        return self._batch.topic if self._shown is None else self._shown[0].topic or ""

    @property
    def queue(self) -> int:
        return self._batch.queue if self._shown is None else self._shown[0].queue or 0

    @property
    def offset(self) -> int:
        """The offset of the first message."""
        return self._batch.offset if self._shown is None else self._shown[0].offset or 0

    @property
    def bodies(self) -> tuple[bytes, ...]:
        return self._batch.bodies

    @property
    def messages(self) -> list[Message]:
        return self._batch.messages if self._shown is None else self._shown

    def __len__(self) -> int:
        return len(self._batch.bodies)

    def __repr__(self) -> str:
        return f"<DeliveryBatch {self.topic}/{self.queue} offset {self.offset}, {len(self)}>"


def held_by(handed: HandedRange) -> tuple[Any, Any, int, int]:
    """Return the member and the claim of a delivery, its first offset and the one after its last.
    The member is a blocking one.
    """
    return handed._member.blocking, handed._claim, *handed._offsets()


def range_of(handed: HandedRange) -> OwnedRange[Any]:
    """Return the claim of a delivery, its first offset and the one after its last."""
    return handed._claim, *handed._offsets()


def settle(handed: Iterable[HandedRange]) -> None:
    """Note that deliveries were acked."""
    for each in handed:
        each._settled = True


def joined(ranges: Iterable[OwnedRange[C]]) -> list[OwnedRange[C]]:
    """Join adjacent ranges of the same claim."""
    found: list[OwnedRange[C]] = []
    for claim, first, end in ranges:
        if found and found[-1][0] is claim and found[-1][2] == first:
            found[-1] = claim, found[-1][1], end
        else:
            found.append((claim, first, end))
    return found


def found_twice(ranges: Iterable[OwnedRange[C]]) -> tuple[C, int] | None:
    """Return the claim and the offset of a message that is in two of the ranges; None if there is
    none.
    """
    ends: dict[int, int] = {}  # the end of the last range of each claim, by the id of the claim
    for claim, first, end in sorted(ranges, key=lambda each: each[1:]):
        if first < ends.get(id(claim), 0):
            return claim, first
        ends[id(claim)] = end
    return None


def is_about(error: BaseException, handed: HandedRange) -> bool:
    """Return whether `error` says that the body of this one message cannot be decoded. No other
    attempt would end differently.
    """
    return (
        isinstance(error, BadBody)
        and isinstance(handed, HandedMessage)
        and (error.topic, error.place) == (handed.topic, (handed.queue, handed.offset))
    )


def lost(topic: str, queue: int, offset: int, lease_seconds: float) -> LeaseLost:
    """Return the error for a message that its consumer does not hold any more."""
    return LeaseLost(
        f"{topic}/{queue} offset {offset}: no longer this consumer's. "
        "It was acked before, given back, also by a person, is part of a transaction, or its "
        f"lease of {lease_seconds:g} s ended and it was redelivered. Nothing was changed; "
        "if handling takes longer, ask for a longer lease."
    )


def of_another_engine(topic: str, queue: int, offset: int) -> BadOption:
    """Return the error for a transaction that is to ack a message of another engine."""
    return BadOption(
        f"{topic}/{queue} offset {offset}: delivered by another "
        "engine than the transaction's, which cannot ack it there. Nothing was changed; "
        "consume and produce with one engine, or ack the delivery by itself."
    )
