"""An engine whose calls are awaited: the calls of `AsyncWritingEngine`, through the door of
a loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from fmq.aio.face.engine_face import AsyncWritingEngine
from fmq.aio.loop_door import LoopDoor
from fmq.arguments.names import check_seconds
from fmq.server.doors import Reach
from fmq.server.server_handle import Serving

if TYPE_CHECKING:
    from fmq.engines.engine import Engine
    from fmq.remote.remote_engine import RemoteEngine


class AsyncEngine(AsyncWritingEngine):
    """A directory, as the coroutines of one loop use it. Made by `fmq.aio.open`, `connect`, `of`.

    Once its loop has closed, the next loop may use it, so an object of a module serves each
    `asyncio.run` in turn. Loops that run at the same time each have a face of their own:
    `fmq.aio.of`.
    """

    _door: LoopDoor

    def __init__(self, engine: Engine | RemoteEngine) -> None:
        self._door = LoopDoor(engine._door)

    async def serve(
        self,
        *,
        tcp: str | None = None,
        token_file: str | None = None,
        tls_cert: str | None = None,
        tls_key: str | None = None,
        sockets: Iterable[Any] = (),
        on_stop: Callable[[], None] | None = None,
    ) -> Serving:
        """Let other processes use the directory by `fmq.connect`, until the returned Serving or the
        engine is closed. A thread serves them. It calls `on_stop` as a blocking engine does.
        """
        reach = Reach(tcp, token_file, tls_cert, tls_key, tuple(sockets), on_stop)
        return await self._door.serve(reach)

    async def stop(self, *, timeout: float = 10.0) -> None:
        """Have the engine process end, as `fmq.stop` does, and close this client. The call does not
        wait until the process has ended. Raises Locked if the process runs a program that cannot be
        stopped from outside, such as this one.
        """
        await self._door.stop(check_seconds("timeout", timeout))
        await self.close()

    def __repr__(self) -> str:
        return repr(self._door)
