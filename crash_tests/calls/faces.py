"""What callers use besides the engine itself: a server, and the event loop of a thread."""

from __future__ import annotations

import asyncio
from typing import Any

from crash_tests.transport.server import BreakingServer
from fmq.aio.loop_engine import AsyncEngine
from fmq.engines.engine import Engine
from fmq.testing import CrashDisk, FakeClock
from fmq.testing.awaited import Awaited


class Server(BreakingServer):
    """A server of an engine that the caller has opened."""

    def __init__(self, disk: CrashDisk, clock: FakeClock, engine: Engine) -> None:
        self._given = engine
        super().__init__(disk, clock, None)

    def _opened(self, clock: FakeClock) -> Engine:
        self._times = clock
        return self._given


class LoopOfThread(Awaited):
    """An engine as fmq.aio has it, in a thread whose loop runs during its calls."""

    def __init__(self, engine: Engine) -> None:
        loop = asyncio.new_event_loop()
        face = AsyncEngine(engine)
        super().__init__(loop.run_until_complete, face)
        self._loop = loop  # no other object uses it, so this one closes it
        self._call(lambda: face._door.side)

    def transaction(self, **named: Any) -> Any:
        """Return a transaction that has its id."""
        return self._call(self._what.transaction, **named)

    def consumer(self, *args: Any, **named: Any) -> Any:
        """Return a consumer that has joined its group, as that of the engine has."""
        return self._call(self._what.consumer, *args, **named).__enter__()

    def let_go(self) -> None:
        """Close the loop, unless a thread hangs in it."""
        if not self._loop.is_running():
            self._loop.close()
