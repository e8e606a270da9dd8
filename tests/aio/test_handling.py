"""Handling messages on a loop: `async for`, blocks, batches, `run` and `drain`."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import fmq
import fmq.aio
from fmq.consume.claims.backoff import Retry


def test_a_block_acks_or_gives_back(on_loop: Any) -> None:
    async def story(face: fmq.aio.AsyncEngine) -> None:
        await face.send_many("t", [b"1", b"2"])
        retry = Retry(backoff=0.0)
        async with face.consumer("t", group="g", retry=retry) as consumer:
            async for delivery in consumer:
                if delivery.attempt == 1 and delivery.body == b"1":
                    with pytest.raises(ZeroDivisionError):
                        async with delivery:
                            raise ZeroDivisionError
                    continue
                async with delivery:
                    await delivery.extend(60)
                assert delivery.is_settled
                if (await face.groups("g"))[0].unread == 0:
                    break

    on_loop(story)


def test_batches_are_acked_together(on_loop: Any) -> None:
    async def story(face: fmq.aio.AsyncEngine) -> None:
        await face.send_many("t", [b"%d" % n for n in range(5)])
        async with face.consumer("t", group="g") as consumer:
            async for batch in consumer.batches(2, 0.01):
                async with batch:
                    assert 1 <= len(batch) <= 2
                if batch[-1].body == b"4":
                    break
        assert (await face.groups("g"))[0].unread == 0

    on_loop(story)


def test_run_gives_each_delivery_to_its_handler_until_it_is_drained(on_loop: Any) -> None:
    async def story(face: fmq.aio.AsyncEngine) -> None:
        await face.send_many("t", [b"%d" % n for n in range(6)])
        handled: list[tuple[bytes, int]] = []

        async def handle(delivery: fmq.aio.AsyncDelivery) -> None:
            await asyncio.sleep(0)
            handled.append((delivery.body, delivery.attempt))
            if delivery.body == b"3" and delivery.attempt == 1:
                raise ZeroDivisionError

        retry = Retry(backoff=0.0)
        async with face.consumer("t", group="g", retry=retry) as consumer:
            running = asyncio.ensure_future(consumer.run(handle, workers=3))
            while len(handled) < 7:
                await asyncio.sleep(0.005)
            assert await consumer.drain(timeout=60)
            await running
            assert await consumer.poll(timeout=60) == []
        assert sorted(handled) == sorted([*((b"%d" % n, 1) for n in range(6)), (b"3", 2)])

    on_loop(story)


def test_a_handler_that_takes_too_long_is_cancelled(on_loop: Any) -> None:
    async def story(face: fmq.aio.AsyncEngine) -> None:
        await face.send_many("t", [b"hangs", b"fails"])
        cancelled: list[bytes] = []

        async def handle(delivery: fmq.aio.AsyncDelivery) -> None:
            if delivery.body == b"fails":
                raise TimeoutError("of its own")
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append(delivery.body)
                raise

        async with face.consumer("t", group="g", retry=Retry(1)) as consumer:
            running = asyncio.ensure_future(consumer.run(handle, time_limit=0.01))
            # Drained from here: a handler that did it would be short of time on a busy machine.
            while (await face.groups("g"))[0].unread:
                await asyncio.sleep(0.005)
            assert await consumer.drain(timeout=60)
            await running
        dead = await (await face.dead_letters("g")).list()
        assert [each.reason for each in dead] == [
            "TimeoutError: the handler took longer than its time limit of 0.01 s",
            "TimeoutError: of its own",
        ]
        assert cancelled == [b"hangs"]
        assert (await face.groups("g"))[0].unread == 0

    on_loop(story)


def test_a_drain_inside_of_a_loop_or_a_handler_does_not_wait_for_itself(on_loop: Any) -> None:
    async def story(face: fmq.aio.AsyncEngine) -> None:
        await face.send_many("t", [b"1", b"2"])
        async with face.consumer("t", group="g") as consumer:
            async for delivery in consumer:
                assert not await consumer.drain(timeout=60)
                await delivery.ack()
        async with face.consumer("t", group="g") as consumer:

            async def handle(delivery: fmq.aio.AsyncDelivery) -> None:
                assert not await consumer.drain(timeout=60)

            await consumer.run(handle)
        assert (await face.groups("g"))[0].unread == 0

    async def in_time(face: fmq.aio.AsyncEngine) -> None:
        async with asyncio.timeout(120):
            await story(face)

    on_loop(in_time)


def test_a_run_that_is_cancelled_gives_back_what_is_in_hand(on_loop: Any) -> None:
    async def story(face: fmq.aio.AsyncEngine) -> None:
        await face.send("t", b"1")
        begun = asyncio.Event()

        async def handle(delivery: fmq.aio.AsyncDelivery) -> None:
            begun.set()
            await asyncio.sleep(60)

        async with face.consumer("t", group="g") as consumer:
            running = asyncio.ensure_future(consumer.run(handle))
            await begun.wait()
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            (again,) = await consumer.poll()
            assert again.attempt == 1

    on_loop(story)


def test_many_waiting_polls_are_woken_one_for_each_message(on_loop: Any) -> None:
    async def story(face: fmq.aio.AsyncEngine) -> None:
        async def one() -> bytes:
            async with face.consumer("t", group="g") as consumer:
                (delivery,) = await consumer.poll(limit=1, timeout=60)
                await delivery.ack()
                return delivery.body

        tasks = [asyncio.ensure_future(one()) for _ in range(20)]
        await asyncio.sleep(0.05)
        for number in range(10):
            await face.send("t", b"%d" % number)
            if number == 4:
                for task in tasks[:5]:
                    task.cancel()  # some of them have got theirs
        left = 20 - sum(task.cancelling() and not task.done() for task in tasks)
        await face.send_many("t", [b"more"] * left)
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert {type(each) for each in ended} <= {bytes, asyncio.CancelledError}
        assert sum(isinstance(each, bytes) for each in ended) >= 15

    on_loop(story)


def test_expired_messages_become_dead_letters(on_loop: Any) -> None:
    async def story(face: fmq.aio.AsyncEngine) -> None:
        now = datetime.now(UTC)
        await face.send("t", b"old", expires_at=now - timedelta(seconds=1))
        await face.send("t", b"new", expires_at=now + timedelta(days=1))
        async with face.consumer("t", group="g", expired="dead_letter") as consumer:
            (delivery,) = await consumer.poll()
            assert delivery.body == b"new"
            await delivery.ack()
        letters = await face.dead_letters("g")
        assert [each.body for each in await letters.list()] == [b"old"]
        with pytest.raises(fmq.errors.BadOption):
            face.consumer("t", group="g", expired="forget")

    on_loop(story)
