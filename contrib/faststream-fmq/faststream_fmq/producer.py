"""Sending: into the transaction whose block is running, or at once if there is none."""

from __future__ import annotations

from typing import Any

from faststream._internal.endpoint.utils import ParserComposition
from faststream._internal.parser import DefaultCodec
from faststream._internal.producer import ProducerProto
from faststream.exceptions import FeatureNotSupportedException

import fmq
import fmq.aio
from faststream_fmq.command import FmqPublishCommand
from faststream_fmq.message import CONTENT_TYPE, CORRELATION_ID, REPLY_TO, FmqParser

NO_REQUEST = (
    "fmq has no requests that wait for an answer. Nothing was sent. Publish with reply_to=, and "
    "let a subscriber take the answers."
)


class FmqProducer(ProducerProto[FmqPublishCommand]):
    """Sends the commands of one broker."""

    def __init__(self, parser: Any, decoder: Any, codec: Any) -> None:
        self._parser: Any = ParserComposition(parser, FmqParser.parse_message)
        self._decoder: Any = ParserComposition(decoder, FmqParser.decode_message)
        self.codec: Any = codec or DefaultCodec()
        self.serializer: Any = None
        self.engine: fmq.aio.AsyncEngine | None = None

    def open(self) -> fmq.aio.AsyncEngine:
        """Return the engine. Raises WrongState before the broker has connected to it."""
        if self.engine is None:
            raise fmq.errors.WrongState(
                "the broker is not connected. Nothing was changed; start it first, or await "
                "broker.connect()."
            )
        return self.engine

    async def join(
        self, topic: str, group: str, options: dict[str, Any]
    ) -> fmq.aio.AsyncConsumer | None:
        """Return a new member of a group; None if messages come without one, as in tests."""
        consumer = self.open().consumer(topic, group=group, **options)
        return await consumer.__aenter__()

    async def encoded(self, cmd: FmqPublishCommand, body: Any) -> tuple[bytes, dict[str, str]]:
        """Return the bytes of a body, and the headers that go with it."""
        data, content_type = await self.codec.encode(body, self.serializer)
        own = {
            CONTENT_TYPE: content_type,
            CORRELATION_ID: cmd.correlation_id,
            REPLY_TO: cmd.reply_to,
        }
        return data, {name: value for name, value in own.items() if value} | cmd.headers

    async def publish(self, cmd: FmqPublishCommand) -> Any:
        """Send a body. Return its receipt, or None if it is sent when a transaction commits."""
        engine = self.open()
        body, headers = await self.encoded(cmd, cmd.body)
        tx = fmq.current_transaction(engine)
        if tx is None:
            return await engine.send(cmd.destination, body, headers=headers, **cmd.how)
        tx.send(cmd.destination, body, headers=headers, **cmd.how)
        return None

    async def publish_batch(self, cmd: FmqPublishCommand) -> Any:
        """Send all bodies, or none. Return their receipts, or None in a transaction."""
        engine = self.open()
        messages = []
        for each in cmd.batch_bodies:
            body, headers = await self.encoded(cmd, each)
            messages.append(fmq.Message(body, headers=headers))
        tx = fmq.current_transaction(engine)
        if tx is None:
            return await engine.send_many(cmd.destination, messages)
        tx.send_many(cmd.destination, messages)
        return None

    async def request(self, cmd: FmqPublishCommand) -> Any:
        """Refuse."""
        raise FeatureNotSupportedException(NO_REQUEST)
