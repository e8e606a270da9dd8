"""Spans of sends and of handlers, and the headers that connect them: on threads, on a loop, and
through a client.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry import baggage, context
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import fmq
import fmq.aio
from fmq.basics.message import Message
from fmq.otel import instrument, processing

TRACEPARENT = re.compile(r"00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


class Tracing:
    """A provider whose spans stay in memory."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    def spans(self, name: str) -> list[ReadableSpan]:
        return [each for each in self._exporter.get_finished_spans() if each.name == name]

    def span(self, name: str) -> ReadableSpan:
        (found,) = self.spans(name)
        return found


@pytest.fixture
def tracing() -> Iterator[Tracing]:
    made = Tracing()
    yield made
    made.provider.shutdown()


@pytest.fixture
def traced(engine: fmq.Engine, tracing: Tracing) -> fmq.Engine:
    return instrument(engine, tracer_provider=tracing.provider)


def ids(span: ReadableSpan) -> tuple[int, int]:
    assert span.context is not None
    return span.context.trace_id, span.context.span_id


def linked(span: ReadableSpan) -> list[tuple[int, int]]:
    return [(each.context.trace_id, each.context.span_id) for each in span.links]


def parent_of(message: Message) -> str:
    assert message.headers is not None
    return message.headers["traceparent"]


def carries(message: Message, span: ReadableSpan) -> bool:
    trace_id, span_id = ids(span)
    return parent_of(message)[:53] == f"00-{trace_id:032x}-{span_id:016x}-"


def test_a_message_carries_the_context_of_its_send(traced: fmq.Engine, tracing: Tracing) -> None:
    traced.send("orders", b"one", key="c-7", headers={"kind": "new"})
    (message,) = traced.read("orders")
    span = tracing.span("send orders")
    assert carries(message, span)
    assert (message.key, message.body) == ("c-7", b"one")
    assert message.headers is not None and message.headers["kind"] == "new"
    assert span.kind is SpanKind.PRODUCER
    assert span.attributes is not None
    assert dict(span.attributes) == {
        "messaging.system": "fmq",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "orders",
    }


def test_a_send_is_a_part_of_the_trace_that_runs(traced: fmq.Engine, tracing: Tracing) -> None:
    with tracing.provider.get_tracer("web").start_as_current_span("POST /orders"):
        traced.send("orders", b"one")
    span, web = tracing.span("send orders"), tracing.span("POST /orders")
    assert span.parent is not None and span.parent.span_id == ids(web)[1]
    assert ids(span)[0] == ids(web)[0]


def test_an_older_context_in_the_headers_is_replaced(traced: fmq.Engine, tracing: Tracing) -> None:
    """A program may send on what it has read, with its headers."""
    traced.send("orders", b"one")
    (first,) = traced.read("orders")
    traced.send("emails", first.body, headers=first.headers)
    (second,) = traced.read("emails")
    assert carries(second, tracing.span("send emails"))


def test_all_messages_of_one_call_carry_one_context(traced: fmq.Engine, tracing: Tracing) -> None:
    traced.send_many("orders", [b"one", Message(b"two", key="k", headers={"a": "b"})])
    one, two = traced.read("orders")
    span = tracing.span("send orders")
    assert carries(one, span) and carries(two, span)
    assert two.key == "k" and two.headers is not None and two.headers["a"] == "b"


def test_each_message_of_a_transaction_has_a_span(traced: fmq.Engine, tracing: Tracing) -> None:
    with traced.transaction() as tx:
        tx.send("orders", b"one")
        tx.send_many("emails", [b"two", b"three"])
    assert carries(traced.read("orders")[0], tracing.span("create orders"))
    for message in traced.read("emails"):
        assert carries(message, tracing.span("create emails"))
    assert isinstance(tx, fmq.Transaction)


def test_messages_of_a_local_transaction_have_spans(traced: fmq.Engine, tracing: Tracing) -> None:
    traced.send_in_transaction(
        [("orders", b"one"), ("emails", Message(b"two"))], lambda tx: "commit", producer="shop"
    )
    assert carries(traced.read("orders")[0], tracing.span("create orders"))
    assert carries(traced.read("emails")[0], tracing.span("create emails"))


def test_baggage_travels_with_a_message(traced: fmq.Engine) -> None:
    token = context.attach(baggage.set_baggage("tenant", "a7"))
    try:
        traced.send("orders", b"one")
    finally:
        context.detach(token)
    (message,) = traced.read("orders")
    assert message.headers is not None and message.headers["baggage"] == "tenant=a7"


def test_a_handler_runs_in_a_span_with_a_link_to_the_send(
    traced: fmq.Engine, tracing: Tracing
) -> None:
    traced.send("orders", b"one", message_id="m-1")
    with traced.consumer("orders", group="mail") as consumer:

        def handle(delivery: fmq.Delivery) -> None:
            with tracing.provider.get_tracer("mail").start_as_current_span("smtp"):
                consumer.drain(timeout=0)

        consumer.run(handle)
    span, sent = tracing.span("process orders"), tracing.span("send orders")
    assert linked(span) == [ids(sent)]
    assert span.parent is None and ids(span)[0] != ids(sent)[0]
    assert span.kind is SpanKind.CONSUMER
    assert span.attributes is not None
    assert span.attributes["messaging.consumer.group.name"] == "mail"
    assert span.attributes["messaging.destination.partition.id"] == "0"
    assert span.attributes["messaging.message.id"] == "m-1"
    assert span.attributes["messaging.message.body.size"] == 3
    assert (span.attributes["fmq.offset"], span.attributes["fmq.attempt"]) == (0, 1)
    smtp = tracing.span("smtp")
    assert smtp.parent is not None and smtp.parent.span_id == ids(span)[1]


def test_a_handler_that_raises_leaves_a_failed_span(traced: fmq.Engine, tracing: Tracing) -> None:
    traced.send("orders", b"one")
    retry = fmq.Retry(attempts=1)
    with traced.consumer("orders", group="mail", retry=retry) as consumer:

        def handle(delivery: fmq.Delivery) -> None:
            consumer.drain(timeout=0)
            raise ValueError("no such address")

        consumer.run(handle)
    span = tracing.span("process orders")
    assert span.status.status_code is StatusCode.ERROR
    assert [each.name for each in span.events] == ["exception"]
    assert traced.groups("mail")[0].dead_letters == 1


def test_a_failed_send_leaves_a_failed_span(traced: fmq.Engine, tracing: Tracing) -> None:
    with pytest.raises(fmq.BadName):
        traced.send("", b"one")
    with pytest.raises(TypeError):
        traced.send("orders", b"one", headers=7)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        traced.send_many("orders", b"one")  # type: ignore[arg-type]
    assert tracing.span("send ").status.status_code is StatusCode.ERROR
    assert traced.queues() == []


def test_a_block_of_ones_own_is_a_span_with_links(traced: fmq.Engine, tracing: Tracing) -> None:
    """A message of a program without traces has no link."""
    traced.send_many("orders", [b"one", b"two"])
    fmq.Engine.send(traced, "orders", b"three")
    sent = ids(tracing.span("send orders"))
    with traced.consumer("orders", group="mail") as consumer:
        polled = consumer.poll()
        with processing(polled, tracer_provider=tracing.provider) as span:
            assert span.is_recording()
        for each in polled:
            each.ack()
    ended = tracing.span("process orders")
    assert linked(ended) == [sent, sent]
    assert ended.attributes is not None and ended.attributes["messaging.batch.message_count"] == 3


def test_a_batch_and_taken_messages_are_processed_alike(
    traced: fmq.Engine, tracing: Tracing
) -> None:
    traced.send_many("orders", [b"one", b"two", b"three"])
    with traced.consumer("orders", group="mail") as consumer:
        batch = consumer.poll_batch(limit=2)
        assert batch is not None
        with processing(batch, tracer_provider=tracing.provider):
            batch.ack()
        with processing(consumer.take(), tracer_provider=tracing.provider):
            pass
    first, second = tracing.spans("process orders")
    assert [len(first.links), len(second.links)] == [2, 1]


def test_clients_make_spans_and_read_those_of_others(
    traced: fmq.Engine, tracing: Tracing, tmp_path: Path
) -> None:
    with fmq.open(tmp_path / "s") as engine, engine.serve(), fmq.connect(tmp_path / "s") as client:
        instrument(client, tracer_provider=tracing.provider)
        client.send("orders", b"one")
        with client.transaction() as tx:
            tx.send("orders", b"two")
        first, second = engine.read("orders")
        assert carries(first, tracing.span("send orders"))
        assert carries(second, tracing.span("create orders"))
        with client.consumer("orders", group="mail") as consumer:
            seen: list[bytes] = []

            def handle(delivery: fmq.Delivery) -> None:
                seen.append(delivery.body)
                if len(seen) == 2:
                    consumer.drain(timeout=0)

            consumer.run(handle)
    spans = tracing.spans("process orders")
    assert [linked(each) for each in spans] == [
        [ids(tracing.span("send orders"))],
        [ids(tracing.span("create orders"))],
    ]


def test_coroutines_make_the_same_spans(tmp_path: Path, tracing: Tracing) -> None:
    async def main() -> None:
        async with fmq.aio.open(tmp_path / "a") as engine:
            instrument(engine, tracer_provider=tracing.provider)
            tracer = tracing.provider.get_tracer("web")
            with tracer.start_as_current_span("POST /orders"):
                await engine.send("orders", b"one")
                await engine.send_many("orders", [b"two"])
                async with engine.transaction() as tx:
                    tx.send("orders", b"three")
                await engine.send_in_transaction([("orders", b"four")], lambda tx: "commit")
            bodies: list[bytes] = []

            async with engine.consumer("orders", group="mail") as consumer:

                async def handle(delivery: fmq.aio.AsyncDelivery) -> None:
                    with tracer.start_as_current_span("smtp"):
                        bodies.append(delivery.body)
                    if len(bodies) == 4:
                        await consumer.drain(timeout=0)

                with tracer.start_as_current_span("the worker's life"):
                    await consumer.run(handle)
            for message in await engine.read("orders"):
                assert TRACEPARENT.fullmatch(parent_of(message))

    asyncio.run(main())
    sent = tracing.spans("send orders") + tracing.spans("create orders")
    handled = tracing.spans("process orders")
    assert [linked(each) for each in handled] == [[ids(each)] for each in sent]
    assert all(each.parent is None for each in handled)
    web = ids(tracing.span("POST /orders"))
    assert all(each.parent is not None and each.parent.span_id == web[1] for each in sent)
    inner = [each.parent.span_id for each in tracing.spans("smtp") if each.parent is not None]
    assert inner == [ids(each)[1] for each in handled]


def test_concurrent_sends_of_coroutines_have_a_span_each(tmp_path: Path, tracing: Tracing) -> None:
    async def main() -> list[Message]:
        async with fmq.aio.open(tmp_path / "a") as engine:
            instrument(engine, tracer_provider=tracing.provider)
            await asyncio.gather(*(engine.send("orders", b"%d" % i) for i in range(20)))
            return await engine.read("orders")

    found = asyncio.run(main())
    assert len({parent_of(message) for message in found}) == 20


def test_without_a_provider_a_message_is_as_it_was(engine: fmq.Engine) -> None:
    """The API alone makes spans that nobody records, and no context to carry."""
    instrument(engine)
    engine.send("orders", b"one")
    engine.send_many("orders", [b"two"])
    assert [each.headers for each in engine.read("orders")] == [None, None]


def test_another_engine_is_not_changed(
    traced: fmq.Engine, tracing: Tracing, tmp_path: Path
) -> None:
    assert isinstance(traced, fmq.Engine)
    with fmq.open(tmp_path / "other") as other:
        assert type(other) is fmq.Engine
        other.send("orders", b"one")
        assert type(other.transaction()) is fmq.Transaction
    assert tracing.spans("send orders") == []


def test_a_second_call_makes_no_second_span(traced: fmq.Engine, tracing: Tracing) -> None:
    second = Tracing()
    assert instrument(traced, tracer_provider=second.provider) is traced
    traced.send("orders", b"one")
    assert len(second.spans("send orders")) == 1
    assert tracing.spans("send orders") == []


def test_only_an_engine_that_sends_can_be_instrumented(tmp_path: Path) -> None:
    fmq.open(tmp_path).close()
    with fmq.open(tmp_path, read_only=True) as reader, pytest.raises(TypeError, match=r"fmq\.aio"):
        instrument(reader)
