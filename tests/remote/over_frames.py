"""An engine for the tests of `Engine`, whose calls go over frames to an engine in memory."""

from __future__ import annotations

from fmq import Engine
from fmq.assembly.parts import Parts
from fmq.remote.link_door import LinkDoor
from fmq.remote.remote_engine import RemoteEngine
from fmq.testing import FakeClock
from fmq.testing.inside import inside
from fmq.testing.transport import RETRY_FOR, MemoryServer, MemoryWire


class OverFrames(RemoteEngine):
    """A client that closes the engine with itself."""

    def __init__(self, engine: Engine, clock: FakeClock) -> None:
        self.served = engine
        self.server = server = MemoryServer(engine, clock)
        where = engine.path
        dial = lambda: MemoryWire(server)  # noqa: E731
        super().__init__(LinkDoor(where, dial, server.draw, clock, RETRY_FOR, background=False))

    @property
    def _parts(self) -> Parts:
        """What tests look at with `inside`."""
        return inside(self.served)

    def close(self) -> None:
        """Close both."""
        super().close()
        self.server.close()
        self.served.close()
