"""Routers: subscribers and publishers that a broker includes, with a prefix for their topics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from faststream._internal.broker.router import ArgsContainer, BrokerRouter, SubscriberRoute
from faststream._internal.constants import EMPTY
from faststream.middlewares import AckPolicy

from faststream_fmq.configuration import FmqBrokerConfig
from faststream_fmq.registrator import FmqRegistrator


class FmqPublisherRoute(ArgsContainer):
    """The arguments of a publisher, for `FmqRoute`."""


class FmqRoute(SubscriberRoute):
    """A handler with the arguments of its subscriber, for `FmqRouter`."""

    def __init__(
        self,
        call: Callable[..., Any],
        topic: str,
        *,
        publishers: Iterable[FmqPublisherRoute] = (),
        **named: Any,
    ) -> None:
        super().__init__(call, topic, publishers=publishers, **named)


class FmqRouter(FmqRegistrator, BrokerRouter[Any, FmqBrokerConfig]):
    """What `broker.include_router` takes."""

    def __init__(
        self,
        prefix: str = "",
        handlers: Iterable[FmqRoute] = (),
        *,
        dependencies: Sequence[Any] = (),
        middlewares: Sequence[Any] = (),
        routers: Iterable[FmqRegistrator] = (),
        parser: Any = None,
        decoder: Any = None,
        codec: Any = None,
        include_in_schema: bool | None = None,
        ack_policy: AckPolicy = EMPTY,
    ) -> None:
        super().__init__(
            handlers=handlers,
            config=FmqBrokerConfig(
                prefix=prefix,
                ack_policy=ack_policy,
                broker_dependencies=dependencies,
                broker_middlewares=middlewares,
                broker_parser=parser,
                broker_decoder=decoder,
                broker_codec=codec,
                include_in_schema=include_in_schema,
            ),
            routers=routers,
        )
