"""An engine of this process: the calls of `WritingEngine`, through the door of the thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from fmq.engines.thread_door import ThreadDoor
from fmq.faces.blocking.engine_face import WritingEngine
from fmq.server.doors import Reach
from fmq.server.server_handle import Serving


class Engine(WritingEngine):
    """A directory opened for writing, made by `fmq.open`. Safe for threads."""

    _door: ThreadDoor

    def __init__(self, door: ThreadDoor) -> None:
        self._door = door

    def serve(
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
        engine is closed. A thread serves them, through a socket in the directory.

        Other machines may reach it at `tcp`, as HOST:PORT, if they know the token in `token_file`.
        Beyond loopback that needs TLS: a certificate and its key, files in PEM. `sockets` are
        others that listen already. While it serves, it is not changed by another call.

        When `fmq.stop` asks for the directory, and clients have settled what they have in hand, the
        thread that serves calls `on_stop`. It has the program close its engine. Without it, another
        process cannot stop this one.
        """
        reach = Reach(tcp, token_file, tls_cert, tls_key, tuple(sockets), on_stop)
        return self._door.serve(reach)

    def __repr__(self) -> str:
        return repr(self._door)
