"""What a consumer was handed: one message, or many of one queue, to ack or give back.

Whether it still may be acked is not known here: its consumer decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from fmq.consume.held import Claim
from fmq.consume.holds import QueueHolds
from fmq.message import Message
from fmq.store.batch import Batch
from fmq.store.kinds import AckRange
from fmq.tx.ledger import Queue
from fmq.tx.writer import Writer

if TYPE_CHECKING:
    from fmq.consume.consumer import Consumer


class Lease:
    """A range of one queue that a consumer may ack, alone or through a transaction."""

    __slots__ = ("_claim", "_end", "_first", "_holds", "_queue")

    def __init__(self, claim: Claim, queue: Queue, holds: QueueHolds, first: int, end: int) -> None:
        self._claim = claim
        self._queue = queue
        self._holds = holds  # that of the group in the queue
        self._first = first
        self._end = end

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

    @property
    def _consumer(self) -> Consumer:
        return self._claim.consumer  # type: ignore[return-value]

    def release(self) -> None:
        """Let it come again now, to whoever asks next."""
        self._consumer._give_back(self)

    def hold_for_transaction(self, writer: Writer, holder: object) -> AckRange:
        """What an ack with `writer` would say; from now on `holder` has it, and no lease ends."""
        return self._consumer._hold_for_transaction(self, writer, holder)

    def release_under_lock(self, holder: object) -> None:
        """What `holder` had of it, and does not ack, is its consumer's again."""
        self._consumer._released(self, holder)

    def _range(self) -> AckRange:
        return AckRange(
            self._consumer.group, self._queue.topic, self._queue.number, self._first, self._end
        )


class Delivery(Lease):
    """One message handed to one consumer."""

    __slots__ = ("_message",)

    def __init__(
        self, claim: Claim, queue: Queue, holds: QueueHolds, offset: int, message: Message
    ) -> None:
        # As Lease does: a poll makes many.
        self._claim, self._queue, self._holds = claim, queue, holds
        self._first, self._end = offset, offset + 1
        self._message = message

    @property
    def message(self) -> Message:
        return self._message

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
    def time(self) -> datetime | None:
        return self._message.time

    def __repr__(self) -> str:
        return f"<Delivery {self.topic}/{self.queue} offset {self.offset}>"


class DeliveryBatch(Lease):
    """Consecutive messages of one queue, acked together: bodies at once, messages when asked."""

    __slots__ = ("_batch",)

    def __init__(self, claim: Claim, queue: Queue, holds: QueueHolds, batch: Batch) -> None:
        super().__init__(claim, queue, holds, batch.offset, batch.next)
        self._batch = batch

    @property
    def bodies(self) -> tuple[bytes, ...]:
        return self._batch.bodies

    @property
    def messages(self) -> list[Message]:
        return self._batch.messages

    def __len__(self) -> int:
        return len(self._batch)

    def __repr__(self) -> str:
        return f"<DeliveryBatch {self.topic}/{self.queue} offset {self.offset}, {len(self)}>"
