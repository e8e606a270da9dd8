"""A delivery of fmq as a message of FastStream, and when its ack is written."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from faststream.message import AckStatus, StreamMessage, decode_message

CONTENT_TYPE = "content-type"
CORRELATION_ID = "correlation_id"
REPLY_TO = "reply_to"


@dataclass
class Settling:
    """What a handler, or its ack policy, has said so far about a delivery. It is done when the
    handler has ended, so that it can be one transaction with what the handler has published.
    """

    delivery: Any
    status: AckStatus | None = None
    reason: str = ""
    delay: float | None = None


SETTLING: ContextVar[Settling | None] = ContextVar("faststream_fmq", default=None)


class FmqMessage(StreamMessage[Any]):
    """A message that a handler gets. `raw_message` is the delivery of fmq."""

    async def ack(self) -> None:
        """Ack the message: in the handler's transaction, at its end; at once if there is none."""
        await super().ack()
        if not self._is_put_off(AckStatus.ACKED):
            await self.raw_message.ack()

    async def nack(self, delay: float | None = None) -> None:
        """Let the message come again after `delay` seconds, or as the subscriber's `retry` says."""
        await super().nack()
        if not self._is_put_off(AckStatus.NACKED, delay=delay):
            await self.raw_message.release(delay=delay)

    async def reject(self, reason: str = "") -> None:
        """Make a dead letter of the message."""
        await super().reject()
        if not self._is_put_off(AckStatus.REJECTED, reason=reason):
            await self.raw_message.reject(reason)

    def _is_put_off(self, status: AckStatus, **said: Any) -> bool:
        if self.raw_message.is_settled:
            return True  # by a transaction of the handler's own, for example
        settling = SETTLING.get()
        if settling is None or settling.delivery is not self.raw_message:
            return False
        if settling.status is None:
            settling.status = status
            for name, value in said.items():
                setattr(settling, name, value)
        return True


class FmqParser:
    """Makes messages of deliveries, and values of their bodies."""

    @staticmethod
    async def parse_message(delivery: Any) -> FmqMessage:
        """Return the message of a delivery."""
        headers = dict(delivery.headers)
        place = f"{delivery.topic}/{delivery.queue}/{delivery.offset}"
        return FmqMessage(
            raw_message=delivery,
            body=delivery.body,
            headers=headers,
            reply_to=headers.get(REPLY_TO, ""),
            content_type=headers.get(CONTENT_TYPE),
            message_id=delivery.message_id or place,
            correlation_id=headers.get(CORRELATION_ID) or place,
        )

    @staticmethod
    async def decode_message(message: StreamMessage[Any]) -> Any:
        """Return the value of a body, as its content type says."""
        return decode_message(message)
