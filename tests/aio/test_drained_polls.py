"""A member that drains ends all of its polls, although polls of other members wait before them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import fmq.aio
from fmq.testing import CrashDisk
from tests.small import opened


@pytest.mark.parametrize("strategy", [None, "average"])
def test_all_polls_of_a_member_that_drains_end(strategy: str | None) -> None:
    """The other members' polls have waited longer. One of them is woken, and finds nothing."""
    how: Any = {} if strategy is None else {"strategy": strategy}

    async def run() -> None:
        with opened(CrashDisk(), queues=2) as inner:
            engine = fmq.aio.of(inner)
            inner.send("t", b"taken before")
            others = [engine.consumer("t", group="g", **how) for _ in range(2)]
            for member in others:
                for delivery in await member.poll():
                    await delivery.ack()
            mine = engine.consumer("t", group="g", **how)
            earlier = [asyncio.ensure_future(each.poll(timeout=1e6)) for each in others * 2]
            polls = [asyncio.ensure_future(mine.poll(timeout=1e6)) for _ in range(3)]
            for _ in range(20):
                await asyncio.sleep(0)
            await mine.drain()
            found = await asyncio.wait_for(asyncio.gather(*polls), 60)
            assert found == [[], [], []]
            assert not any(poll.done() for poll in earlier)
            for member in others:
                await member.close()
            await asyncio.wait_for(asyncio.gather(*earlier, return_exceptions=True), 60)

    asyncio.run(run())
