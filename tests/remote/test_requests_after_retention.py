"""What a directory remembers of clients' requests is the same however it is read."""

from __future__ import annotations

from fmq.testing import CrashDisk, FakeClock
from fmq.testing.transport import MemoryServer
from tests.small import check, opened


def test_clients_of_one_instant_are_remembered_in_one_order(
    disk: CrashDisk, clock: FakeClock
) -> None:
    """The clock stands still. Retention writes who has sent what, behind a record of one client in
    the same segment: a checkpoint and the journal agree all the same.
    """
    with opened(disk, clock, segment_bytes=4096, retain_bytes=8192) as engine:
        server = MemoryServer(engine, clock)
        with server.connect() as one, server.connect() as two:
            for who in (one, one, two, one, one, one, one, one):
                who.send("t", b"x" * 900)
                engine.checkpoint()
                check(disk.after_kill())
        server.close()
