"""The classes of an instrumented engine that blocks, of its transactions and its consumers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

import fmq
from fmq.basics.message import Body, Message
from fmq.otel.message_spans import (
    CREATE,
    SEND,
    MessageSpans,
    headers_with_context,
    message_with_context,
    messages_with_context,
)

T = TypeVar("T")


def traced(found: T, calls: type, spans: MessageSpans) -> T:
    """Let an object have the calls of the class `calls`, in front of its own."""
    anything: Any = found
    if not isinstance(found, calls):
        anything.__class__ = _class_with(calls, anything.__class__)
    anything._spans = spans
    return found


@cache
def _class_with(calls: type, kind: type) -> type:
    return type(kind.__name__, (calls, kind), {"__module__": kind.__module__})


class TracedEngine(fmq.WritingEngine):
    """The calls of an engine that make spans."""

    _spans: MessageSpans

    def send(self, topic: str, body: Body, **how: Any) -> fmq.Receipt:
        """Send with a span."""
        with self._spans.sending(SEND, topic):
            how["headers"] = headers_with_context(how.get("headers"))
            return super().send(topic, body, **how)

    def send_many(
        self, topic: str, bodies: Iterable[Body | Message], **how: Any
    ) -> list[fmq.Receipt]:
        """Send with one span for all messages."""
        with self._spans.sending(SEND, topic):
            return super().send_many(topic, messages_with_context(bodies), **how)

    def transaction(self, **how: Any) -> Any:
        """Return a transaction whose sends make spans."""
        return traced(super().transaction(**how), TracedTransaction, self._spans)

    def send_in_transaction(
        self,
        messages: Iterable[tuple[str, Body | Message]],
        local: Callable[..., Any],
        **how: Any,
    ) -> fmq.Outcome:
        """Create each message with a span."""
        made = created(self._spans, messages)
        return super().send_in_transaction(made, local, **how)

    def consumer(self, topics: str | Iterable[str], **how: Any) -> Any:
        """Return a consumer whose `run` makes spans."""
        found: Any = super().consumer(topics, **how)
        return traced(found, TracedConsumer, self._spans)


def created(
    spans: MessageSpans, messages: Iterable[tuple[str, Body | Message]]
) -> list[tuple[str, Body | Message]]:
    """Return pairs of topic and message, each with the context of a span of its own."""
    made: list[tuple[str, Body | Message]] = []
    for topic, message in messages:
        with spans.sending(CREATE, topic):
            made.append((topic, message_with_context(message)))
    return made


if TYPE_CHECKING:
    Sending = fmq.Transaction
else:
    Sending = object


class TracedTransaction(Sending):
    """The calls of a transaction that make spans. They wait on no face, so there is one class."""

    _spans: MessageSpans

    def send(self, topic: str, body: Body, **how: Any) -> None:
        """Add a message with a span."""
        with self._spans.sending(CREATE, topic):
            how["headers"] = headers_with_context(how.get("headers"))
            super().send(topic, body, **how)

    def send_many(self, topic: str, bodies: Iterable[Body | Message], **how: Any) -> None:
        """Add messages with one span for all."""
        with self._spans.sending(CREATE, topic):
            super().send_many(topic, messages_with_context(bodies), **how)


class TracedConsumer(fmq.AnyConsumer):
    """The call of a consumer that makes spans."""

    _spans: MessageSpans

    def run(self, handler: Any, **how: Any) -> None:
        """Call the handler in a span."""

        def handle(delivery: fmq.Delivery) -> object:
            with self._spans.handling(delivery):
                return handler(delivery)

        super().run(handle if callable(handler) else handler, **how)
