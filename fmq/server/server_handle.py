"""The result of `engine.serve()`: other processes may use the directory until it is closed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fmq.server.doors import Reach
from fmq.server.host import Host


class Serving:
    """The thread that serves the clients of a directory, and its sockets."""

    def __init__(self, path: str, make_host: Callable[[Any], Host], reach: Reach) -> None:
        """`make_host` gets the event loop of the thread."""
        # Imported here, because asyncio is slow to import.
        from fmq.server.listener import SocketListener

        self._listener = SocketListener(path, make_host, reach)

    @property
    def has_ended(self) -> bool:
        """True if it does not serve any more: it was closed, or the engine has failed."""
        return self._listener.has_ended.is_set()

    @property
    def addresses(self) -> list[object]:
        """The addresses at which it listens: the path of a socket, or host and port as
        `socket.getsockname` returns them.
        """
        return self._listener.addresses

    def wait(self, seconds: float) -> bool:
        """Wait until it has ended, at most `seconds`. Return whether it has."""
        return self._listener.has_ended.wait(seconds)

    def quiet_seconds(self) -> float:
        """Return for how many seconds no client was connected."""
        return self._listener.quiet_seconds()

    def gives_way(self, end: Callable[[], None]) -> None:
        """Have `end` called when another process waits for the directory, with `fmq.open(...,
        timeout=)`.
        """
        self._listener.gives_way(end)

    def close(self) -> None:
        """Answer the requests that were made, and accept no client any more. The engine
        stays open.
        """
        self._listener.close()

    def __enter__(self) -> Serving:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def after_fork(serving: Serving) -> None:
    """Close, in the child of a fork, the sockets of a server of the parent."""
    serving._listener.forked()
