"""A task that is cancelled again and again, as anyio does, while what it has ordered is written."""

from __future__ import annotations

import asyncio
import threading

import pytest

import fmq
import fmq.aio
from fmq.testing import CrashDisk, FaultDisk
from tests.small import check


def test_two_cancellations_of_one_task_wait_for_its_running_write() -> None:
    """The committer is in the middle of a write when both cancellations come."""
    disk = CrashDisk()
    door = FaultDisk(disk)
    engine = fmq.open("data", disk=door)
    begun, go_on = threading.Event(), threading.Event()

    async def told() -> str:
        face = fmq.aio.of(engine)
        await face.send("t", b"first")
        face._door.side.turn.writer.pace.turns_left = 1 << 30  # the committer writes

        def stand() -> None:
            begun.set()
            assert go_on.wait(60)

        door.before("write", stand, names="*.seg")
        task = asyncio.create_task(face.send("t", b"second"))
        assert await asyncio.to_thread(begun.wait, 20)
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(0)
            assert not task.done(), "its message may or may not be written"
        go_on.set()
        with pytest.raises(asyncio.CancelledError) as raised:
            await task
        return "".join(raised.value.__notes__)

    assert "it is done" in asyncio.run(told())
    assert [each.body for each in engine.read("t")] == [b"first", b"second"]
    engine.close()
    check(disk)
