"""A client of asyncio in memory: its loop, and a face whose calls a story makes like any others.

Nothing runs beside anything else here. Where the loop would wait, the server runs, and what is
meant for a thread is done at once. So a story is told in the same way each time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from inspect import iscoroutine, iscoroutinefunction
from selectors import SelectorKey
from types import TracebackType
from typing import TYPE_CHECKING, Any

from fmq.aio.engine import AsyncEngine
from fmq.remote.remote_engine import RemoteEngine
from fmq.testing.awaited import AtOnce, Bells, LoopOfBells

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


class Awaited:
    """An object of fmq.aio. Its calls are run to their end."""

    def __init__(self, loop: asyncio.AbstractEventLoop, client: Client, what: Any) -> None:
        self._loop = loop
        self._client = client
        self._what = what

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._what, name)
        return partial(self._call, found) if callable(found) else found

    @property
    def feedback(self) -> Any:
        """The feedback of an engine, which only its loop may ask for."""

        async def found() -> Any:
            return self._what.feedback

        return self._wrapped(self._loop.run_until_complete(found()))

    def _call(self, call: Callable[..., Any], *args: Any, **named: Any) -> Any:
        async def made() -> Any:
            found = call(*map(_bare, args), **named)
            return await found if iscoroutine(found) else found

        try:
            return self._wrapped(self._loop.run_until_complete(made()))
        finally:
            self._client.check()

    def _wrapped(self, found: Any) -> Any:
        if type(found) is list:
            return [self._wrapped(each) for each in found]
        if iscoroutinefunction(found):
            return partial(self._call, found)
        is_aio = type(found).__module__.startswith(("fmq.aio.", "fmq.faces.awaited."))
        return Awaited(self._loop, self._client, found) if is_aio else found

    def __enter__(self) -> Any:
        return self._call(self._what.__aenter__)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> Any:
        return self._call(self._what.__aexit__, kind, error, traceback)


def _bare(given: Any) -> Any:
    if isinstance(given, Awaited):
        return given._what
    return [*map(_bare, given)] if type(given) is list else given


class AwaitedClient(Awaited):
    """A connection of fmq.aio."""

    def __init__(self, server: BreakingServer, client: Client, engine: RemoteEngine) -> None:
        loop = LoopOfBells(ServerRuns(server, client))
        loop.set_exception_handler(self._note)
        face = AsyncEngine(engine)
        super().__init__(loop, client, face)
        self._noted: list[dict[str, Any]] = []
        self._call(face._door.use, loop, AtOnce(loop))

    def _note(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if not self._client.is_dead:
            self._noted.append(context)

    def consumer(self, *args: Any, **named: Any) -> Any:
        """Return a consumer that has joined its group, as that of a blocking client has."""
        return self._call(self._what.consumer, *args, **named).__enter__()

    def run(self, function: Callable[..., Any], *args: Any, **named: Any) -> Any:
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
