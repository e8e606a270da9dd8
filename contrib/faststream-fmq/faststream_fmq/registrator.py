"""`subscriber` and `publisher`: the decorators that brokers and routers share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from faststream._internal.broker.registrator import Registrator
from faststream._internal.configs import PublisherSpecificationConfig, SubscriberSpecificationConfig
from faststream._internal.constants import EMPTY
from faststream._internal.endpoint.subscriber.call_item import CallsCollection
from faststream.middlewares import AckPolicy

import fmq
from faststream_fmq.configuration import (
    FmqBrokerConfig,
    FmqPublisherConfig,
    FmqSubscriberConfig,
)
from faststream_fmq.publisher import FmqPublisher
from faststream_fmq.specification import FmqPublisherSpecification, FmqSubscriberSpecification
from faststream_fmq.subscriber import FmqSubscriber
from fmq.filters import Filter


class FmqRegistrator(Registrator[Any, FmqBrokerConfig]):
    """What has subscribers and publishers."""

    def subscriber(
        self,
        topic: str,
        *,
        group: str,
        filter: Filter | None = None,
        retry: fmq.Retry | None = None,
        ordered: bool = False,
        lease_seconds: float | None = None,
        member: str | None = None,
        broadcast: bool = False,
        max_workers: int = 1,
        ack_policy: AckPolicy = EMPTY,
        no_reply: bool = False,
        dependencies: Sequence[Any] = (),
        parser: Any = None,
        decoder: Any = None,
        codec: Any = None,
        title: str | None = None,
        description: str | None = None,
        include_in_schema: bool = True,
        persistent: bool = True,
    ) -> FmqSubscriber:
        """Return a decorator for a handler of the messages of `topic`, as a member of `group`.

        The arguments up to `broadcast` are those of fmq's `engine.consumer`, and the others those
        of FastStream's brokers. Up to `max_workers` messages are handled at once. A message whose
        handler fails is tried again as `retry` says, unless `ack_policy` says otherwise.
        """
        options = {
            "filter": filter,
            "retry": retry,
            "ordered": ordered,
            "lease_seconds": lease_seconds,
            "member": member,
            "broadcast": broadcast,
        }
        config: Any = self.config
        calls = CallsCollection[Any]()
        specification = FmqSubscriberSpecification(
            config,
            SubscriberSpecificationConfig(
                title_=title, description_=description, include_in_schema=include_in_schema
            ),
            calls,
        )
        specification.topic, specification.group = topic, group
        made = FmqSubscriber(
            FmqSubscriberConfig(
                topic=topic,
                group=group,
                max_workers=max_workers,
                options={name: value for name, value in options.items() if value is not None},
                no_reply=no_reply,
                _outer_config=config,
                _ack_policy=ack_policy,
            ),
            specification,
            calls,
        )
        super().subscriber(made, persistent=persistent)
        made.add_call(
            parser_=parser or self._parser,
            decoder_=decoder or self._decoder,
            codec_=codec,
            dependencies_=dependencies,
        )
        return made

    def publisher(
        self,
        topic: str,
        *,
        key: str | None = None,
        tag: str | None = None,
        delay: float | None = None,
        priority: int | None = None,
        headers: dict[str, str] | None = None,
        reply_to: str = "",
        title: str | None = None,
        description: str | None = None,
        schema: Any = None,
        include_in_schema: bool = True,
        persistent: bool = True,
    ) -> FmqPublisher:
        """Return a publisher for `topic`, which is also a decorator: it publishes what a handler
        returns. `key`, `tag`, `delay` and `priority` are those of fmq's `send`.
        """
        config: Any = self.config
        how = {"key": key, "tag": tag, "delay": delay, "priority": priority}
        specification = FmqPublisherSpecification(
            config,
            PublisherSpecificationConfig(
                schema_=schema,
                title_=title,
                description_=description,
                include_in_schema=include_in_schema,
            ),
        )
        specification.topic = topic
        made = FmqPublisher(
            FmqPublisherConfig(
                topic=topic,
                reply_to=reply_to,
                headers=headers or {},
                how={name: value for name, value in how.items() if value is not None},
                _outer_config=config,
            ),
            specification,
        )
        super().publisher(made, persistent=persistent)
        return made
