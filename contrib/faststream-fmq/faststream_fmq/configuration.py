"""What brokers, routers, subscribers and publishers are made with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from faststream._internal.configs import (
    BrokerConfig,
    PublisherUsecaseConfig,
    SubscriberUsecaseConfig,
    UnderlyingDriverAnnotation,
)
from faststream._internal.constants import EMPTY
from faststream.middlewares import AckPolicy


def _filled_in() -> dict[Any, UnderlyingDriverAnnotation]:
    """Return what a handler has to write instead of a plain type, for FastStream's own error."""
    from faststream_fmq import annotations  # it imports the broker
    from faststream_fmq.broker import FmqBroker
    from faststream_fmq.message import FmqMessage

    return {
        kind: UnderlyingDriverAnnotation(
            type_hint=getattr(annotations, name), module=annotations.__name__, name=name
        )
        for kind, name in ((FmqMessage, "FmqMessage"), (FmqBroker, "FmqBroker"))
    }


@dataclass(kw_only=True)
class FmqBrokerConfig(BrokerConfig):
    """Of a broker or a router."""

    default_driver_annotations: Any = field(default_factory=_filled_in)


@dataclass(kw_only=True)
class FmqPublisherConfig(PublisherUsecaseConfig):
    """Of a publisher: where it sends, and how."""

    topic: str
    reply_to: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    how: dict[str, Any] = field(default_factory=dict)


@dataclass(kw_only=True)
class FmqSubscriberConfig(SubscriberUsecaseConfig):
    """Of a subscriber: what it takes, and as which group."""

    topic: str
    group: str
    max_workers: int = 1
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def ack_policy(self) -> AckPolicy:
        """The policy; without one, a message whose handler fails comes again."""
        for policy in (self._ack_policy, self._outer_config.ack_policy):
            if policy is not EMPTY:
                return policy
        return AckPolicy.NACK_ON_ERROR
