"""`engine.unread`: what a group has not acked, looked at without taking it."""

from __future__ import annotations

import pytest

from fmq.errors import BadOption
from tests.small import CrashDisk, opened


def test_unread_shows_messages_without_taking_them() -> None:
    with opened(CrashDisk(), queues=2) as engine:
        for number in range(6):
            engine.send("t", b"%d" % number, queue=number % 2)
        assert engine.unread("g", "nothing") == []
        with engine.consumer("t", group="g") as consumer:
            held = consumer.poll() + consumer.poll()
            for delivery in held:
                if delivery.body in (b"1", b"2"):
                    delivery.ack()
            assert [each.body for each in engine.unread("g", "t")] == [b"0", b"3", b"4", b"5"]
            assert [each.body for each in engine.unread("g", "t", limit=2)] == [b"0", b"3"]
        assert len(engine.unread("another", "t")) == 6
        with pytest.raises(BadOption):
            engine.unread("g", "t", limit=0)
        with pytest.raises(TypeError):
            engine.unread(b"g", "t")  # type: ignore[arg-type]
