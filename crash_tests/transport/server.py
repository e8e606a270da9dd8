"""A server on a disk that crashes, and connections that break. One blow falls on them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Protocol

import fmq
from crash_tests.engines import PATH, let_go
from crash_tests.transport.awaited import AwaitedClient
from crash_tests.transport.blow import Blow, left_of, part_of
from fmq.arguments.options import Options
from fmq.engines.engine import Engine
from fmq.remote.link_door import LinkDoor
from fmq.remote.remote_engine import RemoteEngine
from fmq.server.session import Session
from fmq.testing import CrashDisk, FakeClock, PowerLoss
from fmq.testing.awaited import RingingWire
from fmq.testing.inside import inside
from fmq.testing.transport import RETRY_FOR, FakeLoop, MemoryServer

# Messages that clients had in hand are handed out at once, so that each story has only one end.
LONG = 100_000.0  # seconds: longer than a story
OPTIONS = Options(
    segment_bytes=4096,
    checkpoint_bytes=2048,
    topic_queues={"b": 2, "h": 1},
    reclaim_seconds=0,
    member_timeout_seconds=LONG,
)


RECLAIM_SECONDS = 1000.0  # the reclaim_seconds of a story whose clients share a group


class ClientDied(BaseException):
    """The client that was calling is dead."""


class Client:
    """The process of a client. A dead one connects no more."""

    is_dead = False

    def check(self) -> None:
        """Raise ClientDied if it is dead."""
        if self.is_dead:
            raise ClientDied


class Survey(Protocol):
    """Notes where blows may fall."""

    def piece(self, server: BreakingServer, data: bytes) -> None:
        """Note a piece of data that a client has sent."""

    def served(self, server: BreakingServer, *, is_answered: bool) -> None:
        """Note that a piece was served, and whether all of it was answered at once."""

    def answer(self, server: BreakingServer, data: bytes) -> None:
        """Note an answer that is about to arrive at a client."""


class Unseen:
    """Implements Survey: notes nothing."""

    def piece(self, server: BreakingServer, data: bytes) -> None: ...
    def served(self, server: BreakingServer, *, is_answered: bool) -> None: ...
    def answer(self, server: BreakingServer, data: bytes) -> None: ...


class BreakingLoop(FakeLoop):
    """A loop whose process may die in each call."""

    def __init__(self, server: BreakingServer, clock: FakeClock) -> None:
        super().__init__(clock)
        self._server = server

    def step(self) -> bool:
        """Make one call, unless the process dies in it."""
        try:
            return super().step()
        except PowerLoss:
            return True
        finally:
            self._server.look()


class BreakingWire(RingingWire):
    """A connection over which nothing comes from a process that is dead."""

    def __init__(self, server: BreakingServer, client: Client) -> None:
        client.check()
        super().__init__(server)
        self.client = client
        self._breaking = server
        server.wires.append(self)

    def arrive(self, data: bytes) -> None:
        """Take bytes of the session, or what comes through of them."""
        server = self._breaking
        if not server.has_power():
            return
        server.answers += 1
        server.survey.answer(server, data)
        part = server.part_of_answer()
        if not part:
            super().arrive(data)
            return
        super().arrive(part_of(data, part))
        self.cut()
        self.session.ended()


class BreakingServer(MemoryServer):
    """A server that meets one blow. If it dies, the next one opens what the blow has left."""

    def __init__(
        self,
        disk: CrashDisk,
        clock: FakeClock,
        blow: Blow | None,
        *,
        reclaim_seconds: float = 0.0,
        jump_seconds: int = 0,
    ) -> None:
        """Its wall clock jumps by `jump_seconds` when the blow falls."""
        self._options = replace(OPTIONS, reclaim_seconds=reclaim_seconds)
        self._jump_us = jump_seconds * 1_000_000
        self.set_back = 0.0  # the seconds by which the wall clock was set back
        self.disk = disk
        self.blow = blow
        self.survey: Survey = Unseen()
        self.pieces = 0  # pieces that clients have sent
        self.answers = 0  # pieces of answers that have arrived at clients
        self.has_fallen = False  # True once the blow has fallen
        self.recoveries = 0
        self.wires: list[BreakingWire] = []
        self.engine = self._opened(clock)
        super().__init__(self.engine, clock)
        self.loop = BreakingLoop(self, clock)
        self.serve(self.engine)

    def _opened(self, clock: FakeClock) -> Engine:
        self._times = clock
        return fmq.open(PATH, self._options, disk=self.disk, clock=clock, background=False)

    def _fall(self) -> None:
        """Note that the blow falls."""
        if not self.has_fallen:
            self._times.set_wall_clock(self._times.time_us() + self._jump_us)
            self.set_back = max(0, -self._jump_us) / 1_000_000
        self.has_fallen = True

    def begin_client(self, *, awaits: bool = False) -> RemoteEngine | AwaitedClient:
        """Return a client that may die. One that `awaits` uses fmq.aio."""
        client = Client()
        dial = partial(BreakingWire, self, client)
        times = FakeClock() if self._jump_us else self._times  # the clock of a client does not jump
        what = "memory", dial, self.draw, times, RETRY_FOR
        engine = RemoteEngine(LinkDoor(*what, background=False))
        return AwaitedClient(self, client, engine) if awaits else engine

    def has_power(self) -> bool:
        """Return whether the disk works."""
        return self.disk.has_power

    def deliver(self, session: Session, data: bytes) -> None:
        """Hand bytes of a client to its session; the blow may fall."""
        self.pieces += 1
        self.survey.piece(self, data)
        what, part = self._blow_at(self.pieces, "ask", "leave", "die")
        if (what, part) == ("die", "before"):
            self.die()
            return
        answers = self.answers
        self._receive(session, data if what in ("", "die") else part_of(data, part))
        if not what:
            self.survey.served(self, is_answered=self.answers > answers)
            return
        if part != "at once":
            self.loop.run()
        if what == "die":
            self.die()
            return
        session.ended()
        session.close()
        if what == "leave":
            self.loop.run()  # its requests are carried out before other clients go on
            (wire,) = (each for each in self.wires if each.session is session)
            wire.client.is_dead = True
            raise ClientDied

    def part_of_answer(self) -> str:
        """Return how much of the answer on its way comes through before the connection is cut."""
        return self._blow_at(self.answers, "answer")[1]

    def _blow_at(self, at: int, *kinds: str) -> tuple[str, str]:
        """Return the blow that falls here, and the part that comes through, if its kind is one of
        these.
        """
        blow = self.blow
        if blow is None or blow.at != at or not blow.how.startswith(kinds):
            return "", ""
        self._fall()
        what, _, part = blow.how.partition(" ")
        return what, part

    def _receive(self, session: Session, data: bytes) -> None:
        try:
            session.received(data)
        except PowerLoss:
            pass
        finally:
            self.look()

    def look(self) -> None:
        """Check whether the process has died."""
        if self.host is not None and not self.has_power():
            self.die()

    def die(self) -> None:
        """Die, and let the next server open what is left."""
        blow = self.blow
        assert blow is not None
        self._fall()
        for wire in self.wires:
            wire.session.has_ended = True
            wire.session._consuming.forget()  # see `_forget_frames`
            wire.cut()
        self.wires.clear()
        self.host = None
        dead, disk = self.engine, self.disk
        try:
            self.disk = left_of(disk, blow)
        finally:
            let_go(dead, disk)
            _forget_frames(dead)
        self.loop = BreakingLoop(self, self._times)
        self.recoveries += 1
        self.engine = self._opened(self._times)
        self.serve(self.engine)


def _forget_frames(dead: Engine) -> None:
    """Drop the frames of the stack through which the engine's failure has passed. The finalizers of
    consumers there refer to the engine, and would keep every engine for ever.
    """
    failure: BaseException | None = inside(dead).commit_queue.failure
    while failure is not None:
        failure.__traceback__ = None
        failure = failure.__cause__ or failure.__context__
