"""What a directory remembers of clients' requests is the same however it is read."""

from __future__ import annotations

from typing import Any

import pytest

from fmq import Engine
from fmq.recovery.checkpoint import SLOTS
from fmq.testing import CrashDisk, FakeClock
from fmq.testing.inside import inside
from fmq.testing.transport import MemoryServer
from tests.small import check, content, opened, remove


def remembered(engine: Engine) -> list[Any]:
    return inside(engine).ledger.requests.carried()


@pytest.mark.parametrize("pause", [0, 200, 3000], ids=["one instant", "minutes", "most of an hour"])
def test_requests_are_remembered_in_one_order(
    disk: CrashDisk, clock: FakeClock, pause: int
) -> None:
    """The clock stands still, or the time between two records hardly counts. Retention carries the
    requests in a STATE after a record of one client in the same segment. A checkpoint and the
    journal agree all the same.
    """
    with opened(disk, clock, segment_bytes=4096, retain_bytes=8192, retain_seconds=700.0) as engine:
        server = MemoryServer(engine, clock)
        with server.connect() as one, server.connect() as two:
            for who in (one, one, two, *[one] * 12):
                who.send("t", b"x" * 900)
                clock.advance(pause)
                engine.checkpoint()
                check(left := disk.after_kill())
                with opened(left.after_kill(), clock) as again:
                    from_checkpoint = remembered(again)
                remove(left, *(name for name in content(left) if name in SLOTS))
                with opened(left, clock) as again:
                    assert remembered(engine) == from_checkpoint == remembered(again)
                clock.advance(pause)
        server.close()
