"""Subscribers: members of groups, whose handlers run one for each message."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from contextvars import ContextVar
from math import inf
from typing import Any

from faststream._internal.endpoint.subscriber.mixins import TasksMixin
from faststream._internal.endpoint.utils import process_msg
from faststream.message import AckStatus
from faststream.middlewares import AckPolicy
from faststream.response import Response

import fmq
import fmq.aio
from faststream_fmq.configuration import FmqSubscriberConfig
from faststream_fmq.message import SETTLING, FmqMessage, FmqParser, Settling
from faststream_fmq.publisher import ReplyPublisher
from faststream_fmq.specification import FmqSubscriberSpecification

# The policies with which the ack is part of the handler's transaction.
AT_THE_END = (AckPolicy.ACK, AckPolicy.NACK_ON_ERROR, AckPolicy.REJECT_ON_ERROR)
# The subscriber whose handler runs in this task.
HANDLING: ContextVar[Any] = ContextVar("faststream_fmq_handling", default=None)


class FmqSubscriber(TasksMixin):
    """Takes the messages of a topic as a member of a group. `broker.subscriber` makes it."""

    def __init__(
        self,
        config: FmqSubscriberConfig,
        specification: FmqSubscriberSpecification,
        calls: Any,
    ) -> None:
        config.parser = FmqParser.parse_message
        config.decoder = FmqParser.decode_message
        super().__init__(config, specification, calls)
        self.config = config
        self._consumer: fmq.aio.AsyncConsumer | None = None

    @property
    def topic(self) -> str:
        """The topic, with the prefix of its router."""
        return f"{self._outer_config.prefix}{self.config.topic}"

    @property
    def group(self) -> str:
        """The group."""
        return self.config.group

    async def start(self) -> None:
        """Join the group, and handle its messages in a task."""
        await super().start()
        producer = self._outer_config.producer
        self._consumer = await producer.join(self.topic, self.group, self.config.options)
        self._post_start()
        if self.calls and self._consumer is not None:
            self.add_task(self._run, (self._consumer,))

    async def stop(self) -> None:
        """Take nothing new, wait for what is in hand, and leave the group."""
        consumer, self._consumer = self._consumer, None
        # What a caller has read by hand, it does not ack any more when it stops.
        timeout = self._outer_config.graceful_timeout if self.calls else 0.0
        if consumer is not None:
            await consumer.drain(timeout=inf if timeout is None else timeout)
        if HANDLING.get() is self:
            return  # a handler stops its own subscriber, whose task ends after it
        if self.tasks:
            await asyncio.wait(self.tasks, timeout=timeout)
        await super().stop()
        if consumer is not None:
            await consumer.close()

    async def _run(self, consumer: fmq.aio.AsyncConsumer) -> None:
        await consumer.run(self._handle, workers=self.config.max_workers)
        await consumer.close()

    async def _handle(self, delivery: fmq.aio.AsyncDelivery) -> None:
        """Handle a delivery. What is neither acked nor given back by then is given back."""
        HANDLING.set(self)
        await self.consume(delivery)
        if not delivery.is_settled:
            with suppress(fmq.errors.LeaseLost):
                await delivery.release()

    async def process_message(self, msg: Any) -> Response:
        """Let the handler have a message: its ack, and all that it publishes, commit together.

        If the handler fails, or gives the message back, nothing of it is published.
        """
        if self.ack_policy not in AT_THE_END or not isinstance(msg, fmq.aio.AsyncDelivery):
            return await super().process_message(msg)
        settling = Settling(msg)
        token = SETTLING.set(settling)
        try:
            return await self._in_a_transaction(settling)
        finally:
            SETTLING.reset(token)

    async def _in_a_transaction(self, settling: Settling) -> Response:
        delivery = settling.delivery
        failure: Exception | None = None
        response = Response(None)
        try:
            async with self._outer_config.producer.open().transaction() as tx:
                try:
                    response = await super().process_message(delivery)
                except Exception as error:
                    failure = error
                if failure is not None or settling.status is not AckStatus.ACKED:
                    await tx.rollback()
                elif not delivery.is_settled:
                    await tx.ack(delivery)
            if not delivery.is_settled:
                await self._settle(settling, failure)
        except Exception as error:
            where = f"{delivery.topic}/{delivery.queue} offset {delivery.offset}"
            text = f"{where}: the message comes again, as its ack was not written: {error}"
            self._log(logging.ERROR, text, exc_info=error)
            raise
        if failure is not None:
            raise failure
        return response

    @staticmethod
    async def _settle(settling: Settling, failure: Exception | None) -> None:
        """Do what the policy says of a message whose handler has failed, or has given it back."""
        delivery = settling.delivery
        if settling.status is AckStatus.ACKED:
            await delivery.ack()
        elif settling.status is AckStatus.REJECTED:
            await delivery.reject(settling.reason or repr(failure or ""))
        else:
            await delivery.release(delay=settling.delay)

    def _make_response_publisher(self, message: Any) -> Sequence[ReplyPublisher]:
        return (ReplyPublisher(self._outer_config.producer, message.reply_to),)

    async def get_one(self, *, timeout: float = 5.0) -> FmqMessage | None:
        """Return the next message, which the caller acks; None if none comes in time."""
        assert not self.calls, "get_one is for a subscriber without handlers"
        assert self._consumer is not None, "start the subscriber first"
        for delivery in await self._consumer.poll(limit=1, timeout=timeout):
            return await self._parsed(delivery)
        return None

    async def __aiter__(self) -> AsyncIterator[FmqMessage]:
        """Yield messages, which the caller acks."""
        assert not self.calls, "iteration is for a subscriber without handlers"
        assert self._consumer is not None, "start the subscriber first"
        async for delivery in self._consumer:
            yield await self._parsed(delivery)

    async def _parsed(self, delivery: fmq.aio.AsyncDelivery) -> FmqMessage:
        parser, decoder = self._get_parser_and_decoder()
        context = self._outer_config.context
        middlewares = (each(delivery, context=context) for each in self._broker_middlewares)
        message: FmqMessage = await process_msg(
            msg=delivery, middlewares=middlewares, parser=parser, decoder=decoder
        )
        return message

    def get_log_context(self, message: Any) -> dict[str, str]:
        """Return what each line of the log says of a message."""
        named = {"topic": self.topic, "group": self.group}
        found: dict[str, str] = super().get_log_context(message)
        return named | found
