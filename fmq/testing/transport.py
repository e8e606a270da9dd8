"""Connections in memory: an engine's server and its clients in one thread, without sockets.

A client that waits for an answer runs the loop of the server until there is one. So a test decides
in which order things happen, and where a stream is cut.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Any

from fmq.engines.engine import Engine
from fmq.remote.link_door import LinkDoor
from fmq.remote.remote_engine import RemoteEngine
from fmq.server.host import Host
from fmq.server.session import Session
from fmq.testing.fake_clock import TICK_SECONDS, FakeClock

RETRY_FOR = 30.0


class FakeTimer:
    """A call that the loop makes later."""

    def __init__(self, call: Callable[[], object]) -> None:
        self.call: Callable[[], object] | None = call

    def cancel(self) -> None:
        """Do not make the call any more."""
        self.call = None


class FakeLoop:
    """A Loop for a server under test. Its time is that of a FakeClock, which the test moves."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self._soon: deque[Callable[[], object]] = deque()
        self._later: list[tuple[float, int, FakeTimer]] = []
        self._numbers = count()

    def call_soon(self, callback: Callable[..., object], *args: Any) -> object:
        """Make the call at the next step."""
        self._soon.append(lambda: callback(*args))
        return None

    call_soon_threadsafe = call_soon

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> FakeTimer:
        """Make the call once the clock has moved on by `delay` seconds."""
        timer = FakeTimer(lambda: callback(*args))
        heappush(self._later, (self._clock.monotonic() + delay, next(self._numbers), timer))
        return timer

    def next_in(self) -> float | None:
        """Return the seconds until the next call is due; None if there is none."""
        if self._soon:
            return 0.0
        while self._later and self._later[0][2].call is None:
            heappop(self._later)
        return max(0.0, self._later[0][0] - self._clock.monotonic()) if self._later else None

    def step(self) -> bool:
        """Make one call. If none is due, move the clock to the next one. Return False if there is
        none at all.
        """
        if self._soon:
            self._soon.popleft()()
            return True
        while self._later:
            when, _, timer = heappop(self._later)
            if timer.call is not None:
                self._clock.advance(max(TICK_SECONDS, when - self._clock.monotonic()))
                timer.call()
                return True
        return False

    def run(self) -> None:
        """Make all calls that are due now."""
        while self._soon:
            self._soon.popleft()()


class MemoryWire:
    """A Wire in memory: the client's end of a connection to a session."""

    def __init__(self, server: MemoryServer) -> None:
        self._server = server
        self._arrived: deque[bytes] = deque()
        self._is_open = True
        host = server.host
        if host is None:
            raise ConnectionRefusedError("no engine serves")
        self.session = Session(host, self.arrive, self.cut)

    def arrive(self, data: bytes) -> None:
        """Receive bytes from the session."""
        self._arrived.append(data)

    def cut(self) -> None:
        """End the connection: nothing more arrives."""
        self._is_open = False

    def send(self, data: bytes) -> None:
        """Hand `data` to the session."""
        if not self._is_open:
            raise BrokenPipeError("the connection was cut")
        self._server.deliver(self.session, data)

    def receive(self) -> bytes:
        """Run the server until there is an answer. Return it."""
        while not self._arrived:
            if not self._is_open or self._server.host is None:
                return b""
            assert self._server.loop.step(), "no answer will ever come"
        return self._arrived.popleft()

    def send_now(self, data: bytes) -> bool:
        """Hand `data` to the session, which takes all of it."""
        self.send(data)
        return True

    def receive_now(self) -> bytes | None:
        """Return the bytes that have arrived; None if there are none."""
        if self._arrived:
            return self._arrived.popleft()
        return None if self._is_open and self._server.host is not None else b""

    def fileno(self) -> int:
        """Return -1: there is no descriptor to watch."""
        return -1

    def forget(self) -> None:
        """Do nothing, because tests in memory do not fork."""

    def close(self) -> None:
        """End the connection, as the client's death would."""
        self._is_open = False
        self.session.ended()


class MemoryServer:
    """An engine with sessions in memory. Tests connect clients to it."""

    def __init__(self, engine: Engine, clock: FakeClock) -> None:
        self.loop = FakeLoop(clock)
        self._clock = clock
        self._drawn = count(1)
        self.host: Host | None = None
        self.serve(engine)

    def draw(self, size: int) -> bytes:
        """Return `size` bytes that no other call returns."""
        return next(self._drawn).to_bytes(size, "little")

    def serve(self, engine: Engine) -> None:
        """Serve `engine` from now on, as a new engine process would."""
        self.engine = engine
        self.host = Host(engine._door, self.loop, self.draw(8))
        self.host.start = _at_once  # no thread, so that a test does the same in each run

    def close(self) -> None:
        """Stop serving."""
        host, self.host = self.host, None
        if host is not None:
            host.close()

    def deliver(self, session: Session, data: bytes) -> None:
        """Pass a client's bytes to its session. A test may override this to cut them."""
        session.received(data)

    def connect(self) -> RemoteEngine:
        """Return a new client."""
        where = "the engine in memory"
        what = where, self.dial, self.draw, self._clock, RETRY_FOR
        return RemoteEngine(LinkDoor(*what, background=False))

    def dial(self) -> MemoryWire:
        """Return a new connection."""
        return MemoryWire(self)


def _at_once(run: Callable[[], None]) -> None:
    run()
