"""`fmq.aio.open`, `connect` and `of`: an engine for the coroutines of one loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Literal, overload

import fmq
from fmq.aio.loop_engine import AsyncEngine
from fmq.aio.threads import Threads
from fmq.arguments.options import Options
from fmq.arguments.path import PathLike
from fmq.basics.clock import Clock
from fmq.engines.engine import Engine
from fmq.machine.disk import Disk
from fmq.remote.remote_engine import RemoteEngine


class Opening:
    """The result of `fmq.aio.open`. Awaited it is the engine; as an `async with` block it closes
    the engine at its end.
    """

    def __init__(self, opened: Callable[[], Any]) -> None:
        self._opened = opened
        self._engine: AsyncEngine | None = None

    async def _open(self) -> AsyncEngine:
        threads = Threads(asyncio.get_running_loop())
        try:
            engine = await threads.read(self._opened, lambda engine: engine.close())
        finally:
            threads.stop()
        return AsyncEngine(engine)

    def __await__(self) -> Generator[Any, None, AsyncEngine]:
        return self._open().__await__()

    async def __aenter__(self) -> AsyncEngine:
        self._engine = await self._open()
        return self._engine

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._engine is not None
        await self._engine.close()


def open(
    path: str | PathLike,
    options: Options | None = None,
    *,
    disk: Disk | None = None,
    clock: Clock | None = None,
    background: bool = True,
    resolve: Mapping[str, object] | None = None,
    timeout: float = 0.0,
    home: str | None = None,
) -> Opening:
    """Open the directory at `path` for the running loop, as `fmq.open` does.

    async with fmq.aio.open("shop") as engine: ...
    engine = await fmq.aio.open("shop")
    """
    named: dict[str, Any] = {"disk": disk, "clock": clock, "background": background}
    named |= {"resolve": resolve, "timeout": timeout, "home": home}
    return Opening(partial(fmq.open, path, options, **named))


@overload
def connect(
    path: str | PathLike,
    options: Options | None = ...,
    *,
    start: bool = ...,
    retry_for: float = ...,
    clock: Clock | None = ...,
    resolve: Mapping[str, object] | None = ...,
    token_file: str | None = ...,
    tls_ca: str | None = ...,
    lazy: Literal[False] = ...,
) -> Opening: ...
@overload
def connect(
    path: str | PathLike,
    options: Options | None = ...,
    *,
    start: bool = ...,
    retry_for: float = ...,
    clock: Clock | None = ...,
    resolve: Mapping[str, object] | None = ...,
    token_file: str | None = ...,
    tls_ca: str | None = ...,
    lazy: Literal[True],
) -> AsyncEngine: ...
def connect(
    path: str | PathLike,
    options: Options | None = None,
    *,
    start: bool = True,
    retry_for: float = 30.0,
    clock: Clock | None = None,
    resolve: Mapping[str, object] | None = None,
    token_file: str | None = None,
    tls_ca: str | None = None,
    lazy: bool = False,
) -> Opening | AsyncEngine:
    """Connect to the process that serves the directory at `path`, as `fmq.connect` does.

        async with fmq.aio.connect("shop") as engine: ...
        engine = await fmq.aio.connect("shop")

    With `lazy` it returns the engine at once, outside of a loop as well, and the engine connects at
    its first call that is awaited.
    """
    named: dict[str, Any] = {"start": start, "retry_for": retry_for, "clock": clock}
    named |= {"resolve": resolve, "token_file": token_file, "tls_ca": tls_ca}
    if lazy:
        return AsyncEngine(fmq.connect(path, options, lazy=True, **named))
    return Opening(partial(fmq.connect, path, options, **named))


def of(engine: Engine | RemoteEngine) -> AsyncEngine:
    """Return an AsyncEngine for an engine or connection that is open. The first loop that uses it
    keeps it.

    Several loops, in several threads, may each have one. Closing one of them closes the engine.
    """
    return AsyncEngine(engine)
