"""What becomes of a message, and of what its handler publishes: all of it, or none."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest
from faststream import AckPolicy
from faststream.exceptions import AckMessage, NackMessage, RejectMessage, StopConsume

import fmq
from faststream_fmq import FmqBroker
from faststream_fmq.annotations import FmqMessage

OnBroker = Callable[[Any], None]
AT_ONCE = fmq.Retry(backoff=0.0)


async def bodies(broker: FmqBroker, topic: str) -> list[bytes]:
    return [each.body for each in await broker.engine.read(topic)]


async def unread(broker: FmqBroker, group: str = "g") -> int:
    return sum(each.unread for each in await broker.engine.groups(group))


def test_the_ack_and_all_that_is_published_are_one_transaction(on_broker: OnBroker) -> None:
    async def story(broker: FmqBroker) -> None:
        @broker.subscriber("orders", group="g")
        @broker.publisher("invoices")
        @broker.publisher("emails")
        async def bill(order: str) -> str:
            assert await broker.publish("seen", "audit") is None  # it is sent with the ack
            await broker.publish_batch("a", "b", topic="audit")
            assert not await bodies(broker, "audit")
            return order + " billed"

        done = asyncio.Event()

        @broker.subscriber("invoices", group="after")
        async def after(_: str) -> None:
            done.set()

        await broker.start()
        receipt = await broker.publish("lamp", "orders")
        assert receipt is not None and receipt.offset == 0
        await done.wait()
        assert (
            await bodies(broker, "invoices") == [b"lamp billed"] == await bodies(broker, "emails")
        )
        assert await bodies(broker, "audit") == [b"seen", b"a", b"b"]
        assert await unread(broker) == 0

    on_broker(story)


def test_a_handler_that_fails_publishes_nothing_and_is_tried_again(on_broker: OnBroker) -> None:
    async def story(broker: FmqBroker) -> None:
        tries: list[int] = []
        done = asyncio.Event()

        @broker.subscriber("orders", group="g", retry=AT_ONCE)
        @broker.publisher("invoices")
        async def bill(order: str) -> str:
            tries.append(len(tries))
            await broker.publish(f"try {len(tries)}", "audit")
            if len(tries) < 3:
                raise ValueError("no")
            return order

        @broker.subscriber("invoices", group="after")
        async def after(_: str) -> None:
            done.set()

        await broker.start()
        await broker.publish("lamp", "orders")
        await done.wait()
        assert await bodies(broker, "audit") == [b"try 3"]
        assert await bodies(broker, "invoices") == [b"lamp"]

    on_broker(story)


def test_after_its_last_attempt_a_message_is_a_dead_letter(on_broker: OnBroker) -> None:
    async def story(broker: FmqBroker) -> None:
        @broker.subscriber("orders", group="g", retry=fmq.Retry(2, backoff=0.0))
        async def bill(_: str) -> None:
            raise ValueError("no")

        await broker.start()
        await broker.publish("lamp", "orders")
        letters = await broker.engine.dead_letters("g")
        while not (found := await letters.list()):
            await asyncio.sleep(0)
        assert found[0].message.body == b"lamp"

    on_broker(story)


@pytest.mark.parametrize(
    ("policy", "dead"),
    [(AckPolicy.REJECT_ON_ERROR, 1), (AckPolicy.ACK, 0), (AckPolicy.ACK_FIRST, 0)],
)
def test_a_policy_says_what_becomes_of_a_failure(
    on_broker: OnBroker, policy: AckPolicy, dead: int
) -> None:
    async def story(broker: FmqBroker) -> None:
        failed = asyncio.Event()

        @broker.subscriber("orders", group="g", ack_policy=policy)
        async def bill(_: str) -> None:
            if policy is AckPolicy.ACK_FIRST:
                assert await unread(broker) == 0
            else:
                await broker.publish("never", "audit")
            failed.set()
            raise ValueError("a reason")

        await broker.start()
        await broker.publish("lamp", "orders")
        await failed.wait()
        await broker.stop()
        await broker.connect()
        assert await unread(broker) == 0
        letters = await (await broker.engine.dead_letters("g")).list()
        assert [each.reason for each in letters] == ["ValueError('a reason')"] * dead
        assert not await bodies(broker, "audit")

    on_broker(story)


def test_a_handler_may_say_by_an_error_what_becomes_of_its_message(on_broker: OnBroker) -> None:
    async def story(broker: FmqBroker) -> None:
        seen: list[str] = []
        done = asyncio.Event()

        @broker.subscriber("orders", group="g", retry=AT_ONCE)
        async def bill(order: str) -> None:
            seen.append(order)
            await broker.publish(order, "audit")
            if order == "ack":
                raise AckMessage
            if order == "reject":
                raise RejectMessage(reason="not ours")
            if seen.count("nack") < 2:
                raise NackMessage(delay=0.0)
            done.set()

        await broker.start()
        await broker.publish_batch("ack", "reject", "nack", topic="orders")
        await done.wait()
        await broker.stop()
        await broker.connect()
        assert await bodies(broker, "audit") == [b"ack", b"nack"]
        letters = await (await broker.engine.dead_letters("g")).list()
        assert [(each.message.body, each.reason) for each in letters] == [(b"reject", "not ours")]
        assert await unread(broker) == 0

    on_broker(story)


def test_by_hand_a_message_is_acked_at_once_and_given_back_without_an_ack(
    on_broker: OnBroker,
) -> None:
    async def story(broker: FmqBroker) -> None:
        tries: list[str] = []
        done = asyncio.Event()

        @broker.subscriber("orders", group="g", ack_policy=AckPolicy.MANUAL, retry=AT_ONCE)
        async def bill(order: str, message: FmqMessage) -> None:
            tries.append(order)
            if len(tries) == 2:
                await message.ack()
                assert await unread(broker) == 0
                done.set()

        await broker.start()
        await broker.publish("lamp", "orders")
        await done.wait()
        assert tries == ["lamp", "lamp"]

    on_broker(story)


def test_a_handler_may_ack_in_a_transaction_of_its_own(on_broker: OnBroker) -> None:
    async def story(broker: FmqBroker) -> None:
        done = asyncio.Event()

        @broker.subscriber("orders", group="g")
        async def bill(order: str, message: FmqMessage) -> None:
            async with broker.engine.transaction() as tx:
                await tx.ack(message.raw_message)
                await broker.publish(order, "invoices")
            assert await unread(broker) == 0
            done.set()

        await broker.start()
        await broker.publish("lamp", "orders")
        await done.wait()
        await broker.stop()
        await broker.connect()
        assert await bodies(broker, "invoices") == [b"lamp"]
        assert await unread(broker) == 0

    on_broker(story)


def test_an_ack_that_comes_too_late_publishes_nothing(on_broker: OnBroker) -> None:
    async def story(broker: FmqBroker) -> None:
        tries: list[str] = []
        done = asyncio.Event()

        @broker.subscriber("orders", group="g", retry=AT_ONCE)
        async def bill(order: str, message: FmqMessage) -> None:
            tries.append(order)
            await broker.publish(f"try {len(tries)}", "audit")
            if len(tries) == 1:  # somebody else takes what this member has
                await take_back(broker)
            else:
                done.set()

        await broker.start()
        await broker.publish("lamp", "orders")
        await done.wait()
        await broker.stop()
        await broker.connect()
        assert await bodies(broker, "audit") == [b"try 2"]

    on_broker(story)


async def take_back(broker: FmqBroker) -> None:
    """Give back what the only member has, as a person can."""
    group = await broker.engine.group("g")
    await group.release((await group.members())[0].name, reason="a test")


def test_workers_handle_several_messages_at_once(on_broker: OnBroker) -> None:
    async def story(broker: FmqBroker) -> None:
        together = asyncio.Barrier(3)
        done = asyncio.Event()

        @broker.subscriber("orders", group="g", max_workers=3)
        async def bill(_: str) -> None:
            await together.wait()
            done.set()

        await broker.start()
        await broker.publish_batch("1", "2", "3", topic="orders")
        await done.wait()

    on_broker(story)


def test_a_handler_can_stop_its_subscriber(on_broker: OnBroker) -> None:
    async def story(broker: FmqBroker) -> None:
        done = asyncio.Event()

        @broker.subscriber("orders", group="g")
        async def bill(_: str) -> None:
            done.set()
            raise StopConsume

        await broker.start()
        await broker.publish("lamp", "orders")
        await done.wait()
        await broker.stop()

    on_broker(story)


def test_a_message_without_a_handler_is_read_by_hand(on_broker: OnBroker) -> None:
    async def story(broker: FmqBroker) -> None:
        reader = broker.subscriber("orders", group="g")
        await reader.start()
        await broker.publish({"name": "lamp"}, "orders", key="k", headers={"color": "red"})
        await broker.publish("second", "orders")
        first = await reader.get_one()
        assert first is not None and await first.decode() == {"name": "lamp"}
        assert first.headers["color"] == "red" and first.raw_message.key == "k"
        await first.ack()
        async for message in reader:
            assert await message.decode() == "second"
            await message.reject("not ours")
            break
        assert await reader.get_one(timeout=0.0) is None
        assert await unread(broker) == 0
        await reader.stop()

    on_broker(story)


def test_a_reader_stops_at_once_and_leaves_what_it_has_read(on_broker: OnBroker) -> None:
    """Nothing waits for an ack of it: the time limit of this test is that of `stop`, and more."""

    async def story(broker: FmqBroker) -> None:
        reader = broker.subscriber("orders", group="g")
        await reader.start()
        await broker.publish("lamp", "orders")
        assert await reader.get_one() is not None
        async with asyncio.timeout(broker.config.graceful_timeout / 2):
            await reader.stop()
        assert await unread(broker) == 1

    on_broker(story)


def test_a_failed_commit_is_in_the_log(tmp_path: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Only with a logger: FastStream's own middleware does not see errors of a commit."""

    async def story() -> None:
        seen: list[int] = []
        broker = FmqBroker(tmp_path / "data", logger=logging.getLogger("of.the.test"))
        done = asyncio.Event()

        @broker.subscriber("orders", group="g", retry=AT_ONCE)
        async def bill(_: str, message: FmqMessage) -> None:
            if not done.is_set() and not seen:
                seen.append(1)
                await take_back(broker)
            else:
                done.set()

        async with asyncio.timeout(60), broker:
            await broker.start()
            await broker.publish("lamp", "orders")
            await done.wait()

    with caplog.at_level(logging.ERROR, "of.the.test"):
        asyncio.run(story())
    assert "orders/0 offset 0: the message comes again" in caplog.text
