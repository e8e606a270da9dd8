"""The classes of an instrumented engine of a loop, as `traced_calls.py` has those that block."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from inspect import isawaitable
from typing import Any

import fmq
import fmq.aio
from fmq.basics.message import Body, Message
from fmq.otel.message_spans import SEND, MessageSpans, headers_with_context, messages_with_context
from fmq.otel.traced_calls import TracedTransaction, created, traced


class TracedAsyncEngine(fmq.aio.AsyncEngine):
    """The calls of an engine that make spans."""

    _spans: MessageSpans

    async def send(self, topic: str, body: Body, **how: Any) -> fmq.Receipt:
        """Send with a span."""
        with self._spans.sending(SEND, topic):
            how["headers"] = headers_with_context(how.get("headers"))
            return await super().send(topic, body, **how)

    async def send_many(
        self, topic: str, bodies: Iterable[Body | Message], **how: Any
    ) -> list[fmq.Receipt]:
        """Send with one span for all messages."""
        with self._spans.sending(SEND, topic):
            return await super().send_many(topic, messages_with_context(bodies), **how)

    def transaction(self, **how: Any) -> Any:
        """Return a transaction whose sends make spans."""
        return traced(super().transaction(**how), TracedTransaction, self._spans)

    async def send_in_transaction(
        self,
        messages: Iterable[tuple[str, Body | Message]],
        local: Callable[..., Any],
        **how: Any,
    ) -> fmq.Outcome:
        """Create each message with a span."""
        made = created(self._spans, messages)
        return await super().send_in_transaction(made, local, **how)

    def consumer(self, topics: str | Iterable[str], **how: Any) -> Any:
        """Return a consumer whose `run` makes spans."""
        found: Any = super().consumer(topics, **how)
        return traced(found, TracedAsyncConsumer, self._spans)


class TracedAsyncConsumer(fmq.aio.AsyncConsumer):
    """The call of a consumer that makes spans."""

    _spans: MessageSpans

    async def run(self, handler: Any, **how: Any) -> None:
        """Call the handler in a span."""

        async def handle(delivery: fmq.aio.AsyncDelivery) -> None:
            with self._spans.handling(delivery):
                result = handler(delivery)
                if isawaitable(result):
                    await result

        await super().run(handle if callable(handler) else handler, **how)
