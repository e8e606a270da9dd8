"""Queues of topics that a client of asyncio does not know yet."""

from __future__ import annotations

import pytest

from fmq.errors import BadName
from fmq.testing import CrashDisk, FakeClock
from fmq.testing.awaited import AwaitedEngine
from tests.small import check, opened


@pytest.mark.parametrize("queue", [4096, 1 << 16, 1 << 80])
def test_a_queue_that_no_topic_has_is_refused_by_name(queue: int) -> None:
    """A frame has sixteen bits for it."""
    disk, clock = CrashDisk(), FakeClock()
    engine = AwaitedEngine(opened(disk, clock), clock, over_frames=True)
    with engine:
        tx = engine.transaction()
        with pytest.raises(BadName, match=f"queue {queue}"):
            tx.send("unknown", b"x", queue=queue)
        tx.send("unknown", b"y", queue=0)
        tx.commit()
        assert [each.body for each in engine.read("unknown")] == [b"y"]
    check(disk)
