"""What ends frees a place for the polls that wait because of a limit: in threads, on a loop and of
clients.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import fmq
import fmq.aio

PATIENCE = 60.0
MESSAGES = 12


@pytest.mark.parametrize("is_client", [False, True])
def test_polls_that_wait_in_threads_take_turns(tmp_path: Path, is_client: bool) -> None:
    in_hand, most = [0], [0]

    def work(consumer: Any) -> list[int]:
        found = []
        for _ in range(MESSAGES // 3):
            [delivery] = consumer.poll(limit=1, timeout=PATIENCE)
            in_hand[0] += 1
            most[0] = max(most[0], in_hand[0])
            found.append(delivery.offset)
            in_hand[0] -= 1
            delivery.ack()
        return found

    with fmq.open(tmp_path / "shop") as engine, ThreadPoolExecutor() as threads:
        engine.send_many("t", [b""] * MESSAGES)
        engine.create_group("g", "t")
        engine.group("g").limit(concurrency=1)
        if is_client:
            engine.serve()
        used = fmq.connect(tmp_path / "shop") if is_client else engine
        consumers = [used.consumer("t", group="g") for _ in range(3)]
        works = [threads.submit(work, each) for each in consumers]
        found = [offset for each in works for offset in each.result(PATIENCE / 2)]
        assert sorted(found) == [*range(MESSAGES)]
        assert most == [1]
        for each in consumers:
            each.close()
        if is_client:
            used.close()


def test_polls_that_wait_on_a_loop_take_turns(tmp_path: Path) -> None:
    async def program() -> list[int]:
        async with fmq.aio.open(tmp_path / "shop") as engine:
            await engine.send_many("t", [b""] * MESSAGES)
            await engine.create_group("g", "t")
            await (await engine.group("g")).limit(concurrency=2)
            in_hand, found = [0], []

            async def work(consumer: Any) -> None:
                for _ in range(MESSAGES // 4):
                    [delivery] = await consumer.poll(limit=1, timeout=PATIENCE)
                    in_hand[0] += 1
                    assert in_hand[0] <= 2
                    found.append(delivery.offset)
                    await asyncio.sleep(0)
                    in_hand[0] -= 1
                    await delivery.ack()

            consumers = [engine.consumer("t", group="g") for _ in range(4)]
            await asyncio.gather(*map(work, consumers))
            for each in consumers:
                await each.close()
            return sorted(found)

    assert asyncio.run(asyncio.wait_for(program(), PATIENCE / 2)) == [*range(MESSAGES)]
