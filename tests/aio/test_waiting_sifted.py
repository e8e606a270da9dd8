"""A poll waits for messages that a thread has to look at: for a filter, an order or an expiry."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import fmq.aio
from fmq import Message, filters
from fmq.testing import CrashDisk, FakeClock
from fmq.testing.awaited import AwaitedEngine
from tests.interrupts import in_thread
from tests.small import check, opened

SIFTED: dict[str, dict[str, Any]] = {
    "by a tag": {"filter": filters.tags("wanted")},
    "by key": {"ordered": True},
    "expired ones": {"expired": "dead_letter"},
}


@pytest.mark.parametrize("how", SIFTED)
@pytest.mark.parametrize("backlog", [0, 3])
def test_a_poll_waits_without_looking_again_and_again(how: str, backlog: int) -> None:
    """The clock moves only where the loop waits: a poll that looks again and again would
    never end.
    """

    def told() -> list[object]:
        disk, clock = CrashDisk(), FakeClock()
        with AwaitedEngine(opened(disk, clock), clock, over_frames=False) as engine:
            consumer = engine.consumer("t", group="g", **SIFTED[how])
            for _ in range(backlog):
                engine.send("t", b"x", tag="unwanted")
            for delivery in consumer.poll():
                delivery.ack()
            found: list[object] = consumer.poll(timeout=100.0)
            assert clock.monotonic() >= 100
        check(disk)
        return found

    assert in_thread(told, "the poll") == []


@pytest.mark.parametrize("how", [*SIFTED, "as they come"])
def test_each_message_wakes_one_waiting_poll(how: str) -> None:
    async def told() -> list[bytes]:
        disk = CrashDisk()
        async with fmq.aio.of(opened(disk, queues=3)) as engine:
            consumers = [engine.consumer("t", group="g", **SIFTED.get(how, {})) for _ in range(3)]
            for each in consumers:
                assert await each.poll() == []  # it has joined
            waiting = [asyncio.create_task(each.poll(limit=1, timeout=60)) for each in consumers]
            for _ in range(9):
                await asyncio.sleep(0)
            messages = [Message(b"%d" % number, tag="wanted") for number in range(3)]
            if how == "by key":  # then each queue has its own member
                for queue, message in enumerate(messages):
                    await engine.send_many("t", [message], queue=queue)
            else:
                await engine.send_many("t", messages)  # which is one event
            found = [body for poll in await asyncio.gather(*waiting) for body in poll]
            bodies = [each.body for each in found]
            for delivery in found:
                await delivery.ack()
        check(disk)
        return bodies

    assert sorted(in_thread(lambda: asyncio.run(told()), "the polls")) == [b"0", b"1", b"2"]
