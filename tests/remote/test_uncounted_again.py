"""An attempt that is not to count is given back, and may have to be given back again."""

from __future__ import annotations

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
        session._close()


def test_a_lost_answer_to_what_does_not_count_leaves_no_attempt_below_none() -> None:
    """The message was given back untried, its client claims it again, and says the same again."""
    clock = FakeClock()
    with opened(CrashDisk(), clock) as engine:
        server = LosesAnswer(engine, clock)
        client = server.connect()
        client.send("t", b"0")
        consumer = client.consumer("t", group="g")
        (delivery,) = consumer.poll()
        delivery.release(count=False)
        assert server.has_lost
        (again,) = consumer.poll()
        assert (again.body, again.attempt) == (b"0", 1)
