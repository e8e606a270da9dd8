"""A kill while one thread rolls and another thread runs chores."""

from __future__ import annotations

import threading

from fmq.testing import CrashDisk, FakeClock, FaultDisk
from tests.small import bodies, check, opened

LARGE = b"x" * 2500  # two of them do not fit into a segment


def test_a_segment_has_no_index_before_the_next_one_is_there() -> None:
    """The roll is planned, and all before it is durable, when another thread writes indexes."""
    disk, clock = CrashDisk(), FakeClock()
    door = FaultDisk(disk)
    with opened(door, clock, segment_bytes=4096) as engine:
        engine.send("t", LARGE)
        begun, go_on = threading.Event(), threading.Event()

        def stand() -> None:
            begun.set()
            assert go_on.wait(60)

        def roll_beside() -> None:
            door.before("write", stand, names="*.spare*")
            sender.start()
            assert begun.wait(60)
            threading.Timer(0.2, go_on.set).start()  # who does not wait is done by then

        sender = threading.Thread(target=lambda: engine.send("t", LARGE))
        door.before("create", roll_beside, names="*.idx*")
        engine.send("t", LARGE)  # it rolls, and writes the index of the first segment
        killed = disk.after_kill()
        go_on.set()
        sender.join(60)
    with opened(killed) as again:
        assert bodies(again, "t")[:2] == [LARGE, LARGE]
    check(killed)
    check(disk)
