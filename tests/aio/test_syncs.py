"""What one call of a turn asks for, its neighbours in that turn do not undo."""

from __future__ import annotations

import asyncio

import pytest

import fmq
import fmq.aio
from fmq.testing import CrashDisk
from tests.small import bodies, opened


@pytest.mark.parametrize("mode", ["interval", "never"])
@pytest.mark.parametrize("first", [True, False])
def test_a_call_with_sync_is_durable_beside_calls_that_do_not_wait(
    mode: str, *, first: bool
) -> None:
    disk = CrashDisk()
    engine = opened(disk, sync=mode)

    async def told() -> None:
        face = fmq.aio.of(engine)
        syncs = [None, None]
        await asyncio.gather(
            *(face.send("t", b"durable", sync=True) for _ in range(first)),
            *(face.send("u", b"perhaps", sync=sync) for sync in syncs),
            *(face.send("t", b"durable", sync=True) for _ in range(not first)),
        )

    asyncio.run(told())
    (nothing_kept, *_) = disk.losses()
    with opened(disk.after(nothing_kept)) as again:
        assert bodies(again, "t") == [b"durable"]
    engine.close()


@pytest.mark.parametrize(("in_tasks", "syncs"), [(True, 7), (False, 127)])
def test_acks_that_a_loop_begins_together_share_one_sync(*, in_tasks: bool, syncs: int) -> None:
    """A loop whose body begins the ack as a task pays one sync for all messages of a poll, and the
    polls of a quick program take 1, 2, 4 and up to 64. A loop that awaits each ack pays one for
    each. The clock stands still, so the counts are always these.
    """
    engine = opened(CrashDisk(), segment_bytes=1 << 20)
    engine.send_many("t", [b"1"] * 127)
    before = engine.stats().syncs

    async def story() -> None:
        face = fmq.aio.of(engine)
        acks: list[asyncio.Task[None]] = []
        async with face.consumer("t", group="g") as consumer:
            async for delivery in consumer:
                acks.append(asyncio.create_task(delivery.ack()))
                if not in_tasks:
                    await acks[-1]
                if len(acks) == 127:
                    break
            await asyncio.gather(*acks)

    asyncio.run(story())
    made_the_group = 1
    assert engine.stats().syncs - before == made_the_group + syncs
    assert engine.groups("g")[0].unread == 0
    engine.close()
