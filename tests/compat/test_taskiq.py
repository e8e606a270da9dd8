"""taskiq on a directory: tasks run, and those of a block with its transaction or not at all."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import fmq
import fmq.aio

taskiq = pytest.importorskip("taskiq")

from taskiq.api import run_receiver_task  # noqa: E402

from fmq.compat.taskiq import FmqBroker  # noqa: E402

PATIENCE_SECONDS = 60.0
Story = Callable[[fmq.aio.AsyncEngine, Any, asyncio.Queue[int]], Awaitable[None]]


def run(path: Path, story: Story) -> None:
    """Run a story beside a worker whose task `note` puts its argument into a queue."""

    async def whole() -> None:
        with fmq.open(path) as engine:
            face = fmq.aio.of(engine)
            broker = FmqBroker(face)
            ran: asyncio.Queue[int] = asyncio.Queue()

            @broker.task
            async def note(number: int) -> None:
                await ran.put(number)

            await broker.startup()
            worker = asyncio.create_task(run_receiver_task(broker))
            try:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    await story(face, note, ran)
            finally:
                worker.cancel()
                await asyncio.gather(worker, return_exceptions=True)
                await broker.shutdown()

    asyncio.run(whole())


def test_tasks_run_and_are_acked(tmp_path: Path) -> None:
    async def story(face: fmq.aio.AsyncEngine, note: Any, ran: asyncio.Queue[int]) -> None:
        for number in range(5):
            await note.kiq(number)
        assert sorted([await ran.get() for _ in range(5)]) == [0, 1, 2, 3, 4]
        while (await face.groups("taskiq"))[0].unread:
            await asyncio.sleep(0)

    run(tmp_path / "data", story)


def test_a_task_sent_in_a_block_belongs_to_its_transaction(tmp_path: Path) -> None:
    async def story(face: fmq.aio.AsyncEngine, note: Any, ran: asyncio.Queue[int]) -> None:
        with pytest.raises(fmq.RollBack):
            async with face.transaction():
                await note.kiq(1)
                raise fmq.RollBack
        async with face.transaction() as tx:
            await note.kiq(2)
            tx.send("orders", b"2")
            assert ran.empty()
        await note.kiq(3)
        assert {await ran.get(), await ran.get()} == {2, 3}
        assert ran.empty()

    run(tmp_path / "data", story)


def test_a_task_waits_for_its_delay(tmp_path: Path) -> None:
    async def story(face: fmq.aio.AsyncEngine, note: Any, ran: asyncio.Queue[int]) -> None:
        began = time.monotonic()
        await note.kicker().with_labels(delay=0.3).kiq(1)
        assert await ran.get() == 1
        assert time.monotonic() >= began + 0.3

    run(tmp_path / "data", story)


def test_a_broker_that_is_not_started_raises_an_error(tmp_path: Path) -> None:
    broker = FmqBroker(tmp_path / "data")
    message = taskiq.BrokerMessage(task_id="1", task_name="t", message=b"", labels={})
    with pytest.raises(fmq.errors.WrongState):
        asyncio.run(broker.kick(message))
