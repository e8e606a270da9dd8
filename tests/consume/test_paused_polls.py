"""A resume wakes the polls that wait, in a thread, on a loop and of clients."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import fmq
import fmq.aio

PATIENCE = 60.0


@pytest.mark.parametrize("whom", ["group", "topic"])
@pytest.mark.parametrize("is_client", [False, True])
def test_polls_that_wait_in_threads_go_on_after_a_resume(
    tmp_path: Path, whom: str, is_client: bool
) -> None:
    with fmq.open(tmp_path / "shop") as engine, ThreadPoolExecutor() as threads:
        engine.send_many("t", [b"0", b"1", b"2"])
        engine.create_group("g", "t")
        paused = engine.group("g") if whom == "group" else engine.topic("t")
        paused.pause(reason="wait")
        if is_client:
            engine.serve()
        used = fmq.connect(tmp_path / "shop") if is_client else engine
        consumers = [used.consumer("t", group="g") for _ in range(3)]
        polls = [threads.submit(each.poll, limit=1, timeout=PATIENCE) for each in consumers]
        while not all(each.seen_seconds == 0.0 for each in engine.group("g").members()):
            pass
        assert not any(poll.done() for poll in polls)
        paused.resume()
        found = [delivery.offset for poll in polls for delivery in poll.result(PATIENCE / 2)]
        assert sorted(found) == [0, 1, 2]
        for each in consumers:
            each.close()
        if is_client:
            used.close()


@pytest.mark.parametrize("strategy", [None, "average"])
@pytest.mark.parametrize("whom", ["group", "topic"])
def test_polls_that_wait_on_a_loop_go_on_after_a_resume(
    tmp_path: Path, whom: str, strategy: str | None
) -> None:
    async def program() -> list[int]:
        async with fmq.aio.open(tmp_path / "shop") as engine:
            await engine.create_topic("t", queues=3)
            await engine.create_group("g", "t")
            group = await engine.group("g")
            paused = group if whom == "group" else await engine.topic("t")
            consumers = [engine.consumer("t", group="g", strategy=strategy) for _ in range(3)]
            for each in consumers:
                assert await each.poll() == []
            await paused.pause(reason="wait")
            for queue in range(3):
                await engine.send("t", b"%d" % queue, queue=queue)
            polls = [
                asyncio.create_task(each.poll(limit=1, timeout=PATIENCE)) for each in consumers
            ]
            for _ in range(9):  # they wait
                await asyncio.sleep(0)
            await paused.resume()
            found = [each.queue for poll in polls for each in await poll]
            for each in consumers:
                await each.close()
            return sorted(found)

    assert asyncio.run(asyncio.wait_for(program(), PATIENCE / 2)) == [0, 1, 2]
