"""An engine for the tests of `Engine`, whose calls go over frames to an engine in memory."""

from __future__ import annotations

from functools import partial

from fmq import Engine
from fmq.assembly.parts import Parts
from fmq.remote.lazy_door import LazyDoor
from fmq.remote.link_door import LinkDoor
from fmq.remote.remote_engine import RemoteEngine
from fmq.testing import FakeClock
from fmq.testing.inside import inside
from fmq.testing.transport import RETRY_FOR, MemoryServer, MemoryWire


class OverFrames(RemoteEngine):
    """A client that closes the engine with itself."""

    def __init__(self, engine: Engine, clock: FakeClock, *, lazy: bool = False) -> None:
        """A `lazy` one connects at its first call."""
        self.served = engine
        self.server = server = MemoryServer(engine, clock)
        what = engine.path, lambda: MemoryWire(server), server.draw, clock, RETRY_FOR
        connect = partial(LinkDoor, *what, background=False)
        super().__init__(LazyDoor(engine.path, connect) if lazy else connect())

    @property
    def _parts(self) -> Parts:
        """Return the parts that tests look at with `inside`."""
        return inside(self.served)

    def close(self) -> None:
        """Close both."""
        super().close()
        self.server.close()
        self.served.close()
