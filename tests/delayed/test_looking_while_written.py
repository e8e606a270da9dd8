"""`delayed()` beside a thread that sends what it lists."""

from __future__ import annotations

import threading

from fmq.testing import CrashDisk, FakeClock, FaultDisk
from tests.small import check, opened


def test_an_unwritten_delayed_message_is_not_read() -> None:
    """While it looks, another thread sends one more: that is noted, and the write of its record is
    only beginning when the list comes to it.
    """
    disk, clock = CrashDisk(), FakeClock()
    door = FaultDisk(disk)
    with opened(door, clock) as engine:
        for number in range(3):
            engine.send("t", b"%d" % number, delay=10 + number)
        begun, go_on = threading.Event(), threading.Event()

        def stand() -> None:
            begun.set()
            assert go_on.wait(60)

        def send_beside() -> None:
            door.before("write", stand, names="*.seg")
            sender.start()
            assert begun.wait(60)
            threading.Timer(0.2, go_on.set).start()  # a list that does not wait is read by then

        sender = threading.Thread(target=lambda: engine.send("u", b"late", delay=100))
        door.before("read", send_beside, names="*.seg")
        found = engine.delayed("u", limit=1)  # it passes over those of the other topic
        assert {each.topic for each in found} <= {"u"}
        sender.join(60)
        assert len(engine.delayed()) == 4
    check(disk)
