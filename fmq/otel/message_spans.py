"""The spans of sends and of handlers, and the headers that connect them.

A send is a span, whose context the message carries in its headers as `traceparent`. Handling it is
a span of another trace, perhaps days later, which has a link to the first one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, Tracer, TracerProvider

import fmq
from fmq.basics.message import Body, Message

SYSTEM = "fmq"
SEND, CREATE, PROCESS = "send", "create", "process"
"""OpenTelemetry's names for what a span of a message does. A message is created when a transaction
is given it, and sent by the commit.
"""
Delivered = Any
"""A message, a delivery, a batch of one queue, or a list of messages or deliveries."""


def tracer_of(provider: TracerProvider | None) -> Tracer:
    """Return the tracer of fmq, by default that of the provider which the process has set."""
    return trace.get_tracer("fmq", fmq.__version__, provider)


class MessageSpans:
    """Makes the spans of one instrumented engine, its transactions and its consumers."""

    def __init__(self, tracer: Tracer) -> None:
        self.tracer = tracer

    @contextmanager
    def sending(self, operation: str, topic: object) -> Iterator[None]:
        """Begin a span, whose context the messages of the block get by `headers` and `messages`."""
        said = attributes_of(operation, f"{topic}")
        name = f"{operation} {topic}"
        with self.tracer.start_as_current_span(name, kind=SpanKind.PRODUCER, attributes=said):
            yield

    def handling(self, delivery: Delivered) -> Any:
        """Begin a span of a trace of its own for what a handler is given."""
        return _process(self.tracer, delivery, Context())


@contextmanager
def processing(
    delivered: Delivered, *, tracer_provider: TracerProvider | None = None
) -> Iterator[Span]:
    """Begin a span for a block that handles `delivered`: a delivery, a batch, a message, or a list
    of deliveries or messages. It has a link to the span that has sent each message.

    The span is a child of the current one, if there is one. `consumer.run` of an instrumented
    engine makes such spans itself.
    """
    with _process(tracer_of(tracer_provider), delivered, None) as span:
        yield span


@contextmanager
def _process(tracer: Tracer, delivered: Delivered, context: Context | None) -> Iterator[Span]:
    messages = [*messages_of(delivered)]
    topic = (messages[0].topic or "") if messages else ""
    said = attributes_of(PROCESS, topic)
    member = getattr(delivered, "_member", None)
    if member is not None:
        said["messaging.consumer.group.name"] = member.named
    if len(messages) == 1:
        (message,) = messages
        said["messaging.destination.partition.id"] = f"{message.queue}"
        said["messaging.message.body.size"] = len(message.body)
        said["fmq.offset"] = message.offset or 0
        if message.message_id is not None:
            said["messaging.message.id"] = message.message_id
    else:
        said["messaging.batch.message_count"] = len(messages)
    attempt = getattr(delivered, "attempt", None)
    if attempt is not None:
        said["fmq.attempt"] = attempt
    links = [Link(found) for found in map(sent_by, messages) if found.is_valid]
    with tracer.start_as_current_span(
        f"{PROCESS} {topic}", context, SpanKind.CONSUMER, said, links
    ) as span:
        yield span


def attributes_of(operation: str, topic: str) -> dict[str, str | int]:
    """Return what each span says, by OpenTelemetry's names."""
    return {
        "messaging.system": SYSTEM,
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": topic,
    }


def messages_of(delivered: Delivered) -> Iterator[Message]:
    """Yield the messages of what a consumer was handed."""
    if isinstance(delivered, Message):
        yield delivered
    elif isinstance(delivered, list):
        for each in delivered:
            yield from messages_of(each)
    elif hasattr(delivered, "message"):
        yield delivered.message
    else:
        yield from delivered.messages


def sent_by(message: Message) -> trace.SpanContext:
    """Return the context of the span that has sent a message; one that is not valid if the message
    carries none.
    """
    context = propagate.extract(message.headers or {}, Context())
    return trace.get_current_span(context).get_span_context()


def headers_with_context(headers: Any) -> Any:
    """Return `headers` with the context of the current span. An argument that is no mapping is left
    as it is, for the call to refuse.
    """
    carrier: dict[str, str] = {}
    if headers is None or isinstance(headers, Mapping):
        propagate.inject(carrier)
    return {**(headers or {}), **carrier} if carrier else headers


def messages_with_context(bodies: Iterable[Body | Message]) -> Iterable[Body | Message]:
    """Return bodies and Messages as Messages with the context of the current span, and as they are
    if there is no context, or if the call will refuse them.
    """
    is_refused = isinstance(bodies, (bytes, bytearray, memoryview, str))
    if is_refused or headers_with_context(None) is None:
        return bodies
    return [message_with_context(each) for each in bodies]


def message_with_context(body: Body | Message) -> Message:
    """Return a body or a Message as a Message with the context of the current span."""
    message = body if isinstance(body, Message) else Message(body)
    return message._replace(headers=headers_with_context(message.headers))
