"""A request is carried out once, however the server's clock jumps between it and its repeat."""

from __future__ import annotations

import pytest

from fmq import Engine
from fmq.errors import OutcomeUnknown
from fmq.remote.link_door import LinkDoor
from fmq.remote.remote_engine import RemoteEngine
from fmq.server.session import Session
from fmq.testing import CrashDisk, FakeClock
from fmq.testing.inside import inside
from fmq.testing.transport import RETRY_FOR, MemoryServer
from fmq.wire.frames import HEAD, Op
from tests.budget import BUDGET, SEED
from tests.remote.test_repeats import WORKS, Killed, Work, change, commit, found_in
from tests.small import bodies, check, opened

HOURS_2 = 7200 * 1_000_000
EVERY = max(1, round(3 / BUDGET))


def change_topics(client: RemoteEngine) -> None:
    """Change topics as `change` does, but without a retention by age, which a jump would
    trigger.
    """
    client.create_topic("x", queues=1).add_queues(2)
    client.send_many("x", [b"1", b"2", b"3"], queue=1)
    client.create_group("g", "x", at="latest")
    client.group("g").seek("x", queue=1, offset=0)
    client.group("g").skip("x", 1, 1)
    client.create_group("old", "x")
    client.group("old").delete()


class Jumps(Killed):
    """The answer to one piece of data is lost. Before the client asks again, the clock of the
    server jumps, others write, and the server may be killed.
    """

    def __init__(self, at: int, *, kills: str, window: float | None) -> None:
        self.kills = kills
        self.window = window
        super().__init__(CrashDisk(), FakeClock(), at, answered=True)
        self.stranger().send("s", b"")

    def _opened(self) -> Engine:
        return opened(
            self.disk, self.clock, topic_queues={"wide": 3}, outcome_window_seconds=self.window
        )

    def stranger(self) -> RemoteEngine:
        """Another client, whose clock is its own."""
        where, clock = "the engine in memory", FakeClock()
        return RemoteEngine(
            LinkDoor(where, self.dial, self.draw, clock, RETRY_FOR, background=False)
        )

    def deliver(self, session: Session, data: bytes) -> None:
        self.left -= 1
        if self.left:
            MemoryServer.deliver(self, session, data)
            return
        session._send = lambda _: None  # carried out, and the answer is lost
        MemoryServer.deliver(self, session, data)
        self.loop.run()
        session.ended()
        session.close()
        if self.kills == "before":
            self.engine.checkpoint()
            self.succeed()
        self.clock.set_wall_clock(self.clock.time_us() + HOURS_2)
        for _ in range(2):
            self.stranger().send("s", b"")
        if self.kills == "after":
            self.succeed()

    def succeed(self) -> None:
        """Let another process serve what a kill leaves."""
        self.disk, dead = self.disk.after_kill(), self.engine
        self.engine = self._opened()
        dead.close()
        self.serve(self.engine)


@pytest.mark.parametrize("kills", ["no", "before", "after"])
@pytest.mark.parametrize(
    "work",
    [change_topics if work is change else work for work in WORKS],
    ids=lambda work: work.__name__,
)
def test_a_repeat_after_a_jump_of_the_servers_clock_is_not_done_again(
    work: Work, kills: str
) -> None:
    """The receipts of a commit in one phase are known even beyond the window of outcomes. The
    answer to one of `EVERY` requests is lost.
    """
    window = 600.0 if work is commit else None
    expected, at = None, 0
    while True:
        server = Jumps(at, kills=kills, window=window)
        client = server.stranger()
        work(client)
        with server.engine as engine:
            found = found_in(engine)
        found["queues"] = [queue for queue in found["queues"] if queue.topic != "s"]
        check(server.disk)
        expected = expected or found
        assert found == expected, at
        if server.left > 0 and at:
            break
        at = at + EVERY if at else 1 + SEED % EVERY
    assert at > 3


class JumpsWithItsClient(MemoryServer):
    """Loses a SEND, and then the clock jumps."""

    has_jumped = False

    def deliver(self, session: Session, data: bytes) -> None:
        if self.has_jumped or HEAD.unpack_from(data)[1] != Op.SEND:
            super().deliver(session, data)
            return
        self.has_jumped = True
        session.ended()
        session.close()
        self._clock.set_wall_clock(self._clock.time_us() + HOURS_2)


def test_a_client_learns_at_once_that_its_request_is_too_old_to_be_repeated() -> None:
    """It has connected again, and no answer will come over that connection."""
    clock = FakeClock()
    with opened(CrashDisk(), clock) as engine:
        client = JumpsWithItsClient(engine, clock).connect()
        with pytest.raises(OutcomeUnknown, match="too long"):
            client.send("t", b"1")
        client.send("t", b"2")
        assert bodies(engine, "t") == [b"2"]


def test_a_client_is_forgotten_after_an_hour_of_records() -> None:
    """Memory does not grow with the clients that there ever were, jumps or not."""
    disk, clock = CrashDisk(), FakeClock()
    with opened(disk, clock) as engine:
        server = MemoryServer(engine, clock)
        for _ in range(200):
            server.connect().send("t", b"")
            clock.advance(60.0)
        assert len(inside(engine).ledger.requests.carried()) == 61
        server.close()
    check(disk)
