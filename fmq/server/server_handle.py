"""What `engine.serve()` returns: other processes may use the directory until it is closed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fmq.server.doors import Reach
from fmq.server.host import Host


class Serving:
    """The socket of a directory, and the thread that serves the clients there."""

    def __init__(self, path: str, make_host: Callable[[Any], Host], reach: Reach) -> None:
        """`make_host` gets the event loop of the thread."""
        from fmq.server.listener import SocketListener  # here: asyncio is slow to import

        self._listener = SocketListener(path, make_host, reach)

    @property
    def has_ended(self) -> bool:
        """True if it serves no more: it was closed, or the engine has failed."""
        return self._listener.has_ended.is_set()

    @property
    def addresses(self) -> list[object]:
        """The addresses at which it listens, each as `socket.getsockname` returns it."""
        return self._listener.addresses

    def wait(self, seconds: float) -> bool:
        """Return whether it has ended, after `seconds` at the latest."""
        return self._listener.has_ended.wait(seconds)

    def quiet_seconds(self) -> float:
        """Return for how long no client has been connected."""
        return self._listener.quiet_seconds()

    def gives_way(self, end: Callable[[], None]) -> None:
        """Have `end` called when another process waits for the directory, by `timeout=`."""
        self._listener.gives_way(end)

    def close(self) -> None:
        """Answer what was asked, and let no process in any more. The engine stays open."""
        self._listener.close()

    def _forked(self) -> None:
        self._listener.forked()

    def __enter__(self) -> Serving:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
