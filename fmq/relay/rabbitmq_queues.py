"""A relay into exchanges and queues of RabbitMQ, at least once.

RabbitMQ confirms each message, and keeps no place that could be stored with it: so the place is a
mark of the directory. A relay that dies behind a batch and before the mark sends the batch again,
with the same `message_id`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Unpack

import aio_pika
from aio_pika.abc import AbstractChannel, AbstractExchange
from aiormq.exceptions import (
    AMQPError,
    AuthenticationError,
    ChannelPreconditionFailed,
    DeliveryError,
    ProbableAuthenticationError,
    PublishError,
)

from fmq.relay.envelope import Envelope, Enveloped, EnvelopeShape
from fmq.relay.loop_thread import LoopThread
from fmq.relay.mark_place import MarkPlace
from fmq.relay.relay_errors import MessageRefused, RelayError, Unsure
from fmq.relay.target import RelayBatch, RelayPlace

SECONDS = 30  # how long an answer may take until the relay is in doubt


def create_queues(address: str, topics: Iterable[str], prefix: str = "", **settings: Any) -> None:
    """Make a durable queue for each topic, if it is not there. `settings` are its arguments, such
    as those of a quorum queue: {"x-queue-type": "quorum"}.
    """
    link = QueueLink(address)
    try:
        link.declare([prefix + topic for topic in topics], settings)
    finally:
        link.close()


class RabbitQueuesTarget:
    """An exchange of a RabbitMQ server, for the relay `name` of `engine`. The routing key is the
    name of the topic. The default exchange hands the message to the queue of that name.
    """

    atomic = False

    def __init__(
        self,
        engine: Any,
        address: str,
        name: str = "relay",
        *,
        exchange: str = "",
        **shape: Unpack[EnvelopeShape],
    ) -> None:
        """`address` is amqp://USER:PASSWORD@HOST:PORT/VHOST."""
        self._address = address
        self._envelope = Envelope(**shape)
        self._exchange = exchange
        self._place = MarkPlace(engine, name)
        self._link: QueueLink | None = None

    def claim(self) -> RelayPlace | None:
        """Connect, raise the mark, and return the place that it has."""
        self.close()
        self._link = QueueLink(self._address, self._exchange)
        return self._place.claim()

    def deliver(self, batch: RelayBatch) -> None:
        """Publish the messages, wait until each is confirmed, and keep the place."""
        link = self._link
        assert link is not None, "it was claimed"
        enveloped = self._envelope.headers(batch, attributes="cloudEvents:")
        wanted = [(each.name, _encoded(each)) for each in enveloped]
        for message, (key, sent), error in zip(
            batch.messages, wanted, link.publish(wanted), strict=True
        ):
            if isinstance(error, PublishError):
                raise RelayError(
                    f"no queue takes the routing key {key!r}. Messages of other topics in the "
                    "last batch are there. `fmq relay --create` or create_queues makes queues."
                )
            if isinstance(error, DeliveryError):
                raise Unsure(f"RabbitMQ does not take {sent.message_id} now")
            if isinstance(error, ValueError | OverflowError):
                raise MessageRefused(message, f"AMQP has no message like it: {error}")
            if error is not None:
                raise Unsure(f"RabbitMQ gave no answer: {type(error).__name__} {error}")
        self._place.keep(batch.place)

    def status(self) -> RelayPlace | None:
        """Return the place that the mark has."""
        return self._place.status()

    def close(self) -> None:
        """Close the connection."""
        if self._link is not None:
            self._link.close()
            self._link = None


def _encoded(enveloped: Enveloped) -> aio_pika.Message:
    message, _, headers = enveloped
    (_, fmq_id), *_ = headers
    said: Any = dict(headers)
    how: Any = {"message_id": fmq_id, "timestamp": message.time, "headers": said}
    return aio_pika.Message(message.body, delivery_mode=aio_pika.DeliveryMode.PERSISTENT, **how)


class QueueLink:
    """A connection and a channel of it, which confirms each message."""

    def __init__(self, address: str, exchange: str = "") -> None:
        self._loop = LoopThread("fmq-rabbitmq")
        try:
            self._run(self._open(address, exchange))
        except BaseException:
            self._loop.end()
            raise

    async def _open(self, address: str, exchange: str) -> None:
        self._connection = await aio_pika.connect(address, timeout=SECONDS)
        self._channel: AbstractChannel = await self._connection.channel(on_return_raises=True)
        self._exchange: AbstractExchange = (
            await self._channel.get_exchange(exchange)
            if exchange
            else self._channel.default_exchange
        )

    def _run(self, call: Any) -> Any:
        try:
            return self._loop.run(call, SECONDS)
        except (
            AuthenticationError,
            ProbableAuthenticationError,
            ChannelPreconditionFailed,
        ) as error:
            raise RelayError(f"RabbitMQ refuses a relay: {error}. Nothing was copied.") from error
        except (AMQPError, OSError, TimeoutError) as error:
            what = f"{type(error).__name__} {error}"
            raise Unsure(f"RabbitMQ gave no answer: {what}") from error

    def declare(self, queues: list[str], arguments: dict[str, Any]) -> None:
        for queue in queues:
            self._run(self._channel.declare_queue(queue, durable=True, arguments=arguments))

    def publish(self, messages: list[tuple[str, aio_pika.Message]]) -> list[BaseException | None]:
        """Publish messages in this order. Return for each its error, once all are confirmed."""
        found: list[Any] = self._run(self._published(messages))
        return [each if isinstance(each, BaseException) else None for each in found]

    async def _published(self, messages: list[tuple[str, aio_pika.Message]]) -> list[Any]:
        publish = self._exchange.publish
        asked = [publish(message, routing_key=key) for key, message in messages]
        return await asyncio.gather(*asked, return_exceptions=True)

    def close(self) -> None:
        """Close the connection, and end its thread."""
        with suppress(RelayError):
            self._run(self._connection.close())
        self._loop.end()
