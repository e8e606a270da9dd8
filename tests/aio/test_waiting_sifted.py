"""A poll waits for messages that a thread has to look at: for a filter, an order or an expiry."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import fmq.aio
from fmq import filters
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
def test_it_waits_and_does_not_look_all_the_time(how: str, backlog: int) -> None:
    """The clock moves only where the loop waits: who looks again and again never ends."""

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


@pytest.mark.parametrize("how", SIFTED)
def test_each_message_wakes_one_of_those_that_wait(how: str) -> None:
    async def told() -> list[bytes]:
        disk = CrashDisk()
        async with fmq.aio.of(opened(disk, queues=3)) as engine:
            consumers = [engine.consumer("t", group="g", **SIFTED[how]) for _ in range(3)]
            waiting = [asyncio.create_task(each.poll(limit=1, timeout=60)) for each in consumers]
            await asyncio.sleep(0)
            for number in range(3):
                await engine.send("t", b"%d" % number, tag="wanted", queue=number)
            found = [body for poll in await asyncio.gather(*waiting) for body in poll]
            bodies = [each.body for each in found]
            for each in found:
                await each.ack()
        check(disk)
        return bodies

    assert sorted(in_thread(lambda: asyncio.run(told()), "the polls")) == [b"0", b"1", b"2"]
