"""What the page of AsyncAPI says of subscribers and publishers."""

from __future__ import annotations

from typing import Any

from faststream._internal.endpoint.publisher import PublisherSpecification
from faststream._internal.endpoint.subscriber import SubscriberSpecification
from faststream.specification.asyncapi.utils import resolve_payloads
from faststream.specification.schema import Message, Operation, PublisherSpec, SubscriberSpec


def _operation(name: str, payload: Any) -> Operation:
    return Operation(message=Message(title=f"{name}:Message", payload=payload), bindings=None)


class FmqSubscriberSpecification(SubscriberSpecification[Any, Any]):
    """Of a subscriber: the topic is the channel, and the group is in its description."""

    topic: str
    group: str

    @property
    def channel_labels(self) -> list[str]:
        """The topic, with the prefix of its router."""
        return [f"{self._outer_config.prefix}{self.topic}"]

    def get_schema(self) -> dict[str, SubscriberSpec]:
        """Return what is said."""
        words = self.description
        group = f"Group: {self.group}"
        return {
            self.name: SubscriberSpec(
                address=self.channel_labels[0],
                description=f"{words}\n\n{group}" if words else group,
                operation=_operation(self.name, resolve_payloads(self.get_payloads())),
                bindings=None,
            )
        }


class FmqPublisherSpecification(PublisherSpecification[Any, Any]):
    """Of a publisher."""

    topic: str

    @property
    def address(self) -> str:
        """The topic, with the prefix of its router."""
        return f"{self._outer_config.prefix}{self.topic}"

    @property
    def name(self) -> str:
        """The title that was given, or one made of the topic."""
        return self.config.title_ or f"{self.address}:Publisher"

    def get_schema(self) -> dict[str, PublisherSpec]:
        """Return what is said."""
        payload = resolve_payloads(self.get_payloads(), "Publisher")
        return {
            self.name: PublisherSpec(
                address=self.address,
                description=self.config.description_,
                operation=_operation(self.name, payload),
                bindings=None,
            )
        }
