"""What a consumer was handed: one message, or many of one queue, to ack or give back.

Whether it still may be acked is not known here: its consumer decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from fmq.consume.holds import QueueHolds
from fmq.consume.ranges import Claim
from fmq.message import Message
from fmq.store.batch import Batch, set_slots
from fmq.store.kinds import AckRange
from fmq.tx.ledger import Queue
from fmq.tx.writer import Writer

if TYPE_CHECKING:
    from fmq.consume.consumer import Consumer


class Lease:
    """A range of one queue that a consumer may ack, alone or through a transaction."""

    __slots__ = ("_claim", "_consumer", "_end", "_first", "_holds", "_queue")

    _claim: Claim
    _consumer: Any  # the Consumer that polled it
    _queue: Queue
    _holds: QueueHolds  # that of the group in the queue
    _first: int
    _end: int

    __setstate__ = set_slots

    @property
    def topic(self) -> str:
        return self._queue.topic

    @property
    def queue(self) -> int:
        return self._queue.number

    @property
    def offset(self) -> int:
        """The offset of the first message."""
        return self._first

    def ack(self, *, sync: bool | None = None) -> None:
        """The group is done with it; durable on return, as `sync` or the engine's options say.

        LeaseLost if it was handed out again meanwhile.
        """
        self._consumer._ack(self, sync)

    def release(self) -> None:
        """Let it come again now, to whoever asks next."""
        self._consumer._give_back(self)

    def hold_for_transaction(self, writer: Writer, holder: object) -> AckRange:
        """What an ack with `writer` would say; from now on `holder` has it, and no lease ends."""
        consumer: Consumer = self._consumer
        return consumer._hold_for_transaction(self, writer, holder)

    def release_under_lock(self, holder: object) -> None:
        """What `holder` had of it, and does not ack, is its consumer's again."""
        self._consumer._released(self, holder)

    def _range(self) -> AckRange:
        return AckRange(
            self._consumer.group, self._queue.topic, self._queue.number, self._first, self._end
        )


@dataclass(frozen=True, init=False, repr=False, eq=False)
class Delivery(Lease):
    """One message handed to one consumer."""

    __slots__ = ("message",)

    message: Message

    def __init__(self) -> None:
        raise TypeError("a Delivery is what consumer.poll gives, and cannot be made")

    @property
    def body(self) -> bytes:
        return self.message.body

    @property
    def key(self) -> str | None:
        return self.message.key

    @property
    def tag(self) -> str | None:
        return self.message.tag

    @property
    def headers(self) -> Mapping[str, str]:
        return self.message.headers or {}

    @property
    def time(self) -> datetime | None:
        return self.message.time

    def __repr__(self) -> str:
        return f"<Delivery {self.topic}/{self.queue} offset {self.offset}>"


class _Draft(Lease):
    """A Delivery before it is frozen, as that of a Message: see fmq/message.py."""

    __slots__ = Delivery.__slots__


def deliveries_of(
    consumer: Consumer,
    claim: Claim,
    queue: Queue,
    holds: QueueHolds,
    first: int,
    messages: Iterable[Message],
) -> list[Delivery]:
    """One for each of `messages`, from the offset `first` on."""
    made = []
    for message in messages:
        draft: Any = _Draft()
        draft._consumer, draft._claim, draft._queue, draft._holds = consumer, claim, queue, holds
        draft._first = first
        draft._end = first = first + 1
        draft.message = message
        draft.__class__ = Delivery
        made.append(draft)
    return made


@dataclass(frozen=True, init=False, repr=False, eq=False)
class DeliveryBatch(Lease):
    """Consecutive messages of one queue, acked together: bodies at once, messages when asked."""

    __slots__ = ("batch",)

    batch: Batch

    def __init__(self) -> None:
        raise TypeError("a DeliveryBatch is what consumer.poll_batch gives, and cannot be made")

    @property
    def bodies(self) -> tuple[bytes, ...]:
        return self.batch.bodies

    @property
    def messages(self) -> list[Message]:
        return self.batch.messages

    def __len__(self) -> int:
        return len(self.batch.bodies)

    def __repr__(self) -> str:
        return f"<DeliveryBatch {self.topic}/{self.queue} offset {self.offset}, {len(self)}>"


class _BatchDraft(Lease):
    """A DeliveryBatch before it is frozen."""

    __slots__ = DeliveryBatch.__slots__


def delivery_batch_of(
    consumer: Consumer, claim: Claim, queue: Queue, holds: QueueHolds, first: int, batch: Batch
) -> DeliveryBatch:
    """All of `batch`, which begins at the offset `first`, in one."""
    draft: Any = _BatchDraft()
    draft._consumer, draft._claim, draft._queue, draft._holds = consumer, claim, queue, holds
    draft._first, draft._end, draft.batch = first, batch.next, batch
    draft.__class__ = DeliveryBatch
    return draft  # type: ignore[no-any-return]
