"""Publishing, routers, the test broker, the page of AsyncAPI, and a handler that is killed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from faststream import FastStream, TestApp
from faststream.asgi import AsgiFastStream, make_ping_asgi
from faststream.exceptions import FeatureNotSupportedException, SetupError
from pydantic import BaseModel

import fmq
from faststream_fmq import (
    FmqBroker,
    FmqMessage,
    FmqPublisherRoute,
    FmqRoute,
    FmqRouter,
    TestFmqBroker,
)
from faststream_fmq.annotations import Engine
from fmq.filters import tags

OnBroker = Callable[[Any], None]


class Order(BaseModel):
    name: str


class Invoice(BaseModel):
    of: str


def shop(where: Any) -> FmqBroker:
    """A broker with a handler that makes invoices of orders, and one for invoices."""
    broker = FmqBroker(where, logger=None)

    @broker.subscriber("orders", group="billing")
    @broker.publisher("invoices")
    async def bill(order: Order) -> Invoice:
        """Bill an order."""
        if not order.name:
            raise ValueError("an order of nothing")
        return Invoice(of=order.name)

    @broker.subscriber("invoices", group="mail")
    async def mail(invoice: Invoice) -> None: ...

    return broker


def test_a_message_has_its_key_tag_headers_and_type(on_broker: OnBroker) -> None:
    async def story(broker: FmqBroker) -> None:
        how: dict[str, Any] = {"key": "k", "tag": "paid", "priority": 9, "message_id": "m-1"}
        await broker.publish(Order(name="lamp"), "orders", headers={"color": "red"}, **how)
        await broker.publish(Order(name="lamp"), "orders", **how)  # fmq takes an id once
        (found,) = await broker.engine.read("orders")
        assert found.body == b'{"name":"lamp"}'
        assert (found.key, found.tag, found.priority, found.message_id) == ("k", "paid", 9, "m-1")
        assert found.headers is not None and found.headers["color"] == "red"
        assert found.headers["content-type"] == "application/json"
        assert await broker.ping()

    on_broker(story)


def test_many_publishes_are_one_transaction_of_the_callers(on_broker: OnBroker) -> None:
    async def story(broker: FmqBroker) -> None:
        with pytest.raises(ZeroDivisionError):
            async with broker.engine.transaction():
                await broker.publish("1", "orders")
                await broker.publish_batch("2", "3", topic="emails")
                raise ZeroDivisionError
        assert not await broker.engine.queues()
        async with broker.engine.transaction():
            await broker.publish("1", "orders")
            await broker.publish_batch("2", "3", topic="emails")
            assert not await broker.engine.queues()
        assert {(each.topic, each.next) for each in await broker.engine.queues()} == {
            ("orders", 1),
            ("emails", 2),
        }
        receipts = await broker.publish_batch("4", "5", topic="emails")
        assert receipts is not None

    on_broker(story)


def test_a_router_adds_its_prefix_and_a_reply_goes_where_the_message_says(
    on_broker: OnBroker,
) -> None:
    async def story(broker: FmqBroker) -> None:
        done = asyncio.Event()

        async def bill(order: str, engine: Engine) -> str:
            assert engine is broker.engine
            return order + " billed"

        async def answered(answer: str) -> None:
            assert answer == "lamp billed"
            done.set()

        made = FmqPublisherRoute("invoices", tag="new")
        bills = FmqRoute(bill, "orders", group="billing", publishers=[made], filter=tags("paid"))
        broker.include_router(FmqRouter("eu-", handlers=[bills]))
        broker.subscriber("answers", group="answered")(answered)
        await broker.start()
        await broker.publish("not wanted", "eu-orders", tag="unpaid", reply_to="answers")
        await broker.publish("lamp", "eu-orders", tag="paid", reply_to="answers")
        await done.wait()
        await broker.stop()
        await broker.connect()
        (found,) = await broker.engine.read("eu-invoices")
        assert (found.body, found.tag) == (b"lamp billed", "new")

    on_broker(story)


def test_requests_and_plain_types_of_arguments_are_refused(on_broker: OnBroker) -> None:
    async def story(broker: FmqBroker) -> None:
        with pytest.raises(FeatureNotSupportedException, match="reply_to"):
            await broker.request("1", "orders")
        with pytest.raises(FeatureNotSupportedException, match="reply_to"):
            await broker.publisher("orders").request("1")

        @broker.subscriber("orders", group="g")
        async def bill(order: str, message: FmqMessage) -> None: ...

        with pytest.raises(SetupError, match=r"faststream_fmq\.annotations"):
            await broker.start()

    on_broker(story)


def test_a_broker_that_is_not_connected_says_so() -> None:
    with pytest.raises(fmq.errors.WrongState, match="not connected"):
        asyncio.run(FmqBroker("data").publish("1", "orders"))


def test_the_test_broker_calls_handlers_without_an_engine() -> None:
    broker = shop("/no/such/directory")

    @broker.subscriber("invoices", group="tax")
    async def tax(invoice: Invoice) -> None: ...

    async def story() -> None:
        async with TestFmqBroker(broker), TestApp(FastStream(broker)):
            await broker.publish(Order(name="lamp"), "orders")
            await tax.assert_called_once_with({"of": "lamp"})
            await broker.publish_batch({"name": "a"}, {"name": "b"}, topic="orders")
            assert tax.mock.call_count == 3
            with pytest.raises(ValueError, match="an order of nothing"):
                await broker.publish(Order(name=""), "orders")
            late = broker.subscriber("audit", group="late")
            seen = []

            @late
            async def hear(line: str) -> None:
                seen.append(line)

            await late.start()
            await broker.publish("a line", "audit")
            await late.stop()
            assert seen == ["a line"]

    asyncio.run(story())


def test_the_test_broker_may_use_the_real_engine(tmp_path: Path) -> None:
    broker = shop(tmp_path / "data")

    async def story() -> None:
        async with asyncio.timeout(60), TestFmqBroker(broker, with_real=True):
            await broker.publish(Order(name="lamp"), "orders")
            while not await broker.engine.read("invoices"):
                await asyncio.sleep(0)

    asyncio.run(story())
    with fmq.open(tmp_path / "data", read_only=True) as engine:
        assert [each.body for each in engine.read("invoices")] == [b'{"of":"lamp"}']


def test_the_page_of_asyncapi_shows_topics_groups_and_types(tmp_path: Path) -> None:
    async def story() -> None:
        broker = shop(tmp_path / "data")
        page = "/docs"
        app = AsgiFastStream(
            broker, asyncapi_path=page, asgi_routes=[("/up", make_ping_asgi(broker))]
        )
        client = httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://test")
        async with broker, client:
            assert (await client.get("/up")).status_code == 204
            found = await client.get(page)
        assert found.status_code == 200
        for word in ("orders", "invoices", "Group: billing", "Bill an order.", "Invoice"):
            assert word in found.text

    asyncio.run(story())


CHILD = """
import asyncio, os, sys
from faststream_fmq import FmqBroker

async def main():
    broker = FmqBroker(sys.argv[1], logger=None)

    @broker.subscriber("orders", group="g")
    @broker.publisher("invoices")
    async def bill(order: str) -> str:
        await broker.publish("seen", "audit")
        print("handling", flush=True)
        if sys.argv[2] == "die":
            await asyncio.Event().wait()
        asyncio.get_running_loop().call_later(0, done.set)
        return order

    done = asyncio.Event()
    async with broker:
        await broker.start()
        await done.wait()

asyncio.run(main())
"""


def test_a_worker_that_is_killed_in_its_handler_publishes_nothing(tmp_path: Path) -> None:
    data = tmp_path / "data"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with fmq.open(data) as engine:
        engine.serve()
        engine.send("orders", b"lamp")
        for how in ("die", "live"):
            child = subprocess.Popen(
                [sys.executable, "-c", CHILD, str(data), how],
                stdout=subprocess.PIPE,
                env=environment,
            )
            assert child.stdout is not None and child.stdout.readline() == b"handling\n"
            if how == "die":
                child.send_signal(signal.SIGKILL)
            child.communicate(timeout=60)
            made = [] if how == "die" else [b"lamp"]
            assert [each.body for each in engine.read("invoices")] == made
            assert len(engine.read("audit")) == len(made)
