"""An attempt that is not to count is given back, and may have to be given back again."""

from __future__ import annotations

import pytest

from fmq.server.session import Session
from fmq.testing import CrashDisk, FakeClock
from fmq.testing.transport import MemoryServer
from fmq.wire.frames import HEAD, Op
from tests.small import opened


class LosesAnswer(MemoryServer):
    """Carries out the first RELEASE, and its answer is lost with the connection."""

    has_lost = False

    def deliver(self, session: Session, data: bytes) -> None:
        if self.has_lost or HEAD.unpack_from(data)[1] != Op.RELEASE:
            super().deliver(session, data)
            return
        self.has_lost = True
        session._send = lambda _: None
        super().deliver(session, data)
        session.ended()
        session.close()


@pytest.mark.parametrize("counted", [0, 1, 3])
def test_an_attempt_whose_release_has_a_lost_answer_is_uncounted_once(counted: int) -> None:
    """The message was given back, its client claims it again, and asks for the same again."""
    clock = FakeClock()
    with opened(CrashDisk(), clock) as engine:
        server = LosesAnswer(engine, clock)
        client = server.connect()
        client.send("t", b"0")
        consumer = client.consumer("t", group="g")
        server.has_lost = True
        for _ in range(counted):
            consumer.poll()[0].release(delay=0.0)
        server.has_lost = False
        (delivery,) = consumer.poll()
        delivery.release(delay=0.0, count=False)
        assert server.has_lost
        (again,) = consumer.poll()
        assert (again.body, again.attempt) == (b"0", counted + 1)
