"""Instrumenting one engine: from then on it is of a class that makes spans and calls its own one.

No other engine pays for it, and no call of an engine knows about it.
"""

from __future__ import annotations

import sys
from typing import TypeVar

from opentelemetry.trace import TracerProvider

import fmq
from fmq.otel.message_spans import MessageSpans, tracer_of
from fmq.otel.traced_calls import TracedEngine, traced

T = TypeVar("T")


def instrument(engine: T, *, tracer_provider: TracerProvider | None = None) -> T:
    """Let an engine of `fmq.open`, `fmq.connect` or `fmq.aio` make spans. Return the engine.

    Each send of it, and each message that a transaction of it is given, is a span of a producer,
    and carries the context of the span in its headers, as `traceparent`. Each call of a handler by
    `consumer.run` is a span with a link to it; in a loop of your own, `processing` makes one.
    Transactions and consumers that are there already are not changed. Once is enough: a second call
    changes the provider alone. Raises TypeError for what cannot send.
    """
    spans = MessageSpans(tracer_of(tracer_provider))
    loop = sys.modules.get("fmq.aio")  # without it there is no engine of a loop, and it is slow
    if isinstance(engine, fmq.WritingEngine):
        return traced(engine, TracedEngine, spans)
    if loop is not None and isinstance(engine, loop.AsyncEngine):
        from fmq.otel.traced_loop_calls import TracedAsyncEngine

        return traced(engine, TracedAsyncEngine, spans)
    raise TypeError(
        f"{engine!r}: must be an engine of fmq.open, fmq.connect or fmq.aio, which can send. "
        "Nothing was changed."
    )
