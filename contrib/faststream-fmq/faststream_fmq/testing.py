"""The test broker: what is published goes to its handlers at once, without an engine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any
from unittest.mock import AsyncMock

from faststream._internal.testing.broker import TestBroker, change_producer

from faststream_fmq.broker import FmqBroker
from faststream_fmq.command import FmqPublishCommand
from faststream_fmq.producer import FmqProducer
from faststream_fmq.publisher import FmqPublisher
from faststream_fmq.subscriber import FmqSubscriber

OFFSETS = count()


class FakeDelivery:
    """A delivery of no engine. It remembers how it was settled."""

    queue = 0

    def __init__(
        self, topic: str, body: bytes, headers: dict[str, str], how: dict[str, Any]
    ) -> None:
        self.topic = topic
        self.body = body
        self.headers = headers
        self.key = how.get("key")
        self.tag = how.get("tag")
        self.priority = how.get("priority")
        self.message_id = how.get("message_id")
        self.offset = next(OFFSETS)
        self.settled_by = ""

    @property
    def is_settled(self) -> bool:
        """Whether it was acked or given back."""
        return bool(self.settled_by)

    async def ack(self) -> None:
        """Remember that it was acked."""
        self.settled_by = "ack"

    async def release(self, *, delay: float | None = None) -> None:
        """Remember that it was given back."""
        self.settled_by = "release"

    async def reject(self, reason: str = "") -> None:
        """Remember that it was rejected."""
        self.settled_by = "reject"


class FakeProducer(FmqProducer):
    """Calls the handlers of all brokers of a test."""

    def __init__(self, broker: FmqBroker, brokers: Sequence[FmqBroker]) -> None:
        config = broker.config
        super().__init__(config.broker_parser, config.broker_decoder, config.broker_codec)
        self.serializer = config.fd_config._serializer
        self._brokers = brokers

    async def join(self, topic: str, group: str, options: dict[str, Any]) -> None:
        """Do nothing: `publish` calls the handlers itself."""

    def _takers(self, topic: str) -> list[FmqSubscriber]:
        """Return one subscriber of each group that reads `topic`."""
        found: dict[str, FmqSubscriber] = {}
        for broker in self._brokers:
            for each in broker.subscribers:
                assert isinstance(each, FmqSubscriber)
                if each.topic == topic and each.calls:
                    found.setdefault(each.group, each)
        return list(found.values())

    async def publish(self, cmd: FmqPublishCommand) -> None:
        """Let each group have the message."""
        await self._deliver(cmd, cmd.body)

    async def publish_batch(self, cmd: FmqPublishCommand) -> None:
        """Let each group have the messages."""
        for body in cmd.batch_bodies:
            await self._deliver(cmd, body)

    async def _deliver(self, cmd: FmqPublishCommand, body: Any) -> None:
        data, headers = await self.encoded(cmd, body)
        for taker in self._takers(cmd.destination):
            await taker.process_message(FakeDelivery(cmd.destination, data, headers, cmd.how))


class TestFmqBroker(TestBroker[FmqBroker, Any], broker=FmqBroker):  # type: ignore[call-arg]
    """`async with TestFmqBroker(broker) as broker`: in this block the broker calls its handlers
    directly, so what they raise reaches the test. With `with_real` it works on its engine.
    """

    @contextmanager
    def _patch_producer(self, broker: FmqBroker) -> Iterator[None]:
        with change_producer(broker.config.broker_config, FakeProducer(broker, self.brokers)):
            yield

    def create_publisher_fake_subscriber(
        self, broker: FmqBroker, publisher: FmqPublisher
    ) -> tuple[FmqSubscriber, bool]:
        """Return a subscriber that sees what `publisher` sends, and whether it is one of the
        program's.
        """
        for each in (each for broker in self.brokers for each in broker.subscribers):
            if each.topic == publisher.topic:
                return each, True
        made = broker.subscriber(publisher.topic, group="faststream-test", persistent=False)
        return made, False

    async def _fake_connect(self, broker: FmqBroker, *args: Any, **named: Any) -> AsyncMock:
        return AsyncMock()
