"""A client of asyncio in memory: its loop, and a face whose calls a story makes like blocking ones.

Nothing runs beside anything else here. Where the loop would wait, the server runs, and what is
meant for a thread is done at once. So a story is told in the same way each time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from selectors import SelectorKey
from typing import TYPE_CHECKING, Any

from fmq.aio.loop_engine import AsyncEngine
from fmq.remote.remote_engine import RemoteEngine
from fmq.testing.awaited import AtOnce, Awaited, Bells, LoopOfBells

if TYPE_CHECKING:
    from crash_tests.transport.server import BreakingServer, Client


class ServerRuns(Bells):
    """A selector that lets the server run where the loop of a client would wait."""

    def __init__(self, server: BreakingServer, client: Client) -> None:
        super().__init__()
        self._server = server
        self._client = client

    def select(self, timeout: float | None = None) -> list[tuple[SelectorKey, int]]:
        """Return what can be read."""
        self._client.check()  # the loop would log that it is dead, and go on
        while (found := self.ringing()) is None and timeout != 0:
            assert self._server.loop.step(), "no answer will ever come"
        return found or []


class AwaitedClient(Awaited):
    """A connection of fmq.aio."""

    def __init__(self, server: BreakingServer, client: Client, engine: RemoteEngine) -> None:
        loop = LoopOfBells(ServerRuns(server, client))
        loop.set_exception_handler(self._note)
        face = AsyncEngine(engine)
        self._loop, self._client = loop, client
        super().__init__(self._finished, face)
        self._noted: list[dict[str, Any]] = []
        self._call(face._door.use, loop, AtOnce(loop))

    def _finished(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        try:
            return self._loop.run_until_complete(coroutine)
        finally:
            self._client.check()

    def _note(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if not self._client.is_dead:
            self._noted.append(context)

    def consumer(self, *args: Any, **named: Any) -> Any:
        """Return a consumer that has joined its group, as that of a blocking client has."""
        return self._call(self._what.consumer, *args, **named).__enter__()

    def tell(self, function: Callable[..., Any], *args: Any, **named: Any) -> Any:
        """Run a coroutine that is given the bare objects of fmq.aio."""
        return self._call(function, *args, **named)

    def close(self) -> None:
        """Close the connection and the loop."""
        self._call(self._what.close)
        self.let_go()
        assert not self._noted, f"the loop has met {self._noted}"

    def let_go(self) -> None:
        """Close the loop of a client that is dead, or has closed its connection."""
        self._loop.close()
