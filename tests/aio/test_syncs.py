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
def test_a_call_with_sync_keeps_it_beside_calls_that_do_not_wait(mode: str, *, first: bool) -> None:
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
