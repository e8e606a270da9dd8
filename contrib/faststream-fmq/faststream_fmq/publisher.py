"""Publishers: an object that sends to one topic, and what a handler returns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from faststream._internal.endpoint.publisher import PublisherUsecase
from faststream._internal.endpoint.publisher.fake import FakePublisher
from faststream.exceptions import FeatureNotSupportedException
from faststream.response import PublishCommand

from faststream_fmq.command import FmqPublishCommand, command
from faststream_fmq.configuration import FmqPublisherConfig
from faststream_fmq.producer import NO_REQUEST
from faststream_fmq.specification import FmqPublisherSpecification


class FmqPublisher(PublisherUsecase):
    """Sends to one topic. `broker.publisher` makes it; it decorates handlers, too."""

    def __init__(
        self, config: FmqPublisherConfig, specification: FmqPublisherSpecification
    ) -> None:
        super().__init__(config, specification)
        self.config = config

    @property
    def topic(self) -> str:
        """The topic, with the prefix of its router."""
        return f"{self._outer_config.prefix}{self.config.topic}"

    async def publish(
        self,
        message: Any = None,
        topic: str | None = None,
        *,
        headers: dict[str, str] | None = None,
        correlation_id: str | None = None,
        reply_to: str = "",
        **how: Any,
    ) -> Any:
        """Publish, as `FmqBroker.publish` does, to the topic of this publisher."""
        cmd = command(
            topic or self.topic,
            message,
            headers=self.config.headers | (headers or {}),
            correlation_id=correlation_id or self._outer_config.id_generator(),
            reply_to=reply_to or self.config.reply_to,
            how=self.config.how | how,
        )
        return await self._basic_publish(
            cmd, producer=self._outer_config.producer, _extra_middlewares=()
        )

    async def _publish(self, cmd: PublishCommand, *, _extra_middlewares: Iterable[Any]) -> None:
        """Publish what a handler has returned."""
        cmd = FmqPublishCommand.from_cmd(cmd)
        cmd.destination = self.topic
        cmd.how = self.config.how | cmd.how
        cmd.reply_to = cmd.reply_to or self.config.reply_to
        cmd.add_headers(self.config.headers, override=False)
        await self._basic_publish(
            cmd, producer=self._outer_config.producer, _extra_middlewares=_extra_middlewares
        )

    async def request(self, message: Any = None, **_: Any) -> Any:
        """Refuse."""
        raise FeatureNotSupportedException(NO_REQUEST)


class ReplyPublisher(FakePublisher):
    """Publishes what a handler returns to the topic that a message names in `reply_to`."""

    def __init__(self, producer: Any, topic: str) -> None:
        super().__init__(producer=producer)
        self._topic = topic

    def patch_command(self, cmd: PublishCommand) -> FmqPublishCommand:
        """Return `cmd` for that topic."""
        found = FmqPublishCommand.from_cmd(super().patch_command(cmd))
        found.destination = self._topic
        return found
