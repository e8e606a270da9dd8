"""The door of a client that connects at its first call. So a module may make it at its import."""

from __future__ import annotations

from collections.abc import Callable
from threading import RLock
from typing import Any

from fmq.assembly.shutdown import forget, remember
from fmq.errors import Closed
from fmq.remote.link_door import LinkDoor


class LazyDoor:
    """`fmq.connect(lazy=True)` makes it. From its first use on, it leads to a LinkDoor."""

    def __init__(self, where: str, connect: Callable[[], LinkDoor]) -> None:
        self._where = where
        self._connect = connect
        self._connecting = RLock()
        self._closed = False
        self._made: LinkDoor | None = None
        remember(self)

    def met(self) -> LinkDoor:
        """Return the LinkDoor. If there is none yet, connect."""
        if self._made is None:
            with self._connecting:
                if self._closed:
                    text = f"{self._where}: closed before its first call. Nothing was changed."
                    raise Closed(text)
                if self._made is None:  # False if another thread has connected meanwhile
                    self._made = self._connect()
        return self._made

    def __getattr__(self, name: str) -> Any:
        return getattr(self.met(), name)

    def close(self) -> None:
        """Close the connection if there is one. From now on none is made."""
        with self._connecting:
            self._closed = True
        forget(self)
        if self._made is not None:
            self._made.close()

    def forked(self) -> None:
        """Begin anew in the child of a fork: a thread that was connecting does not exist there."""
        self._connecting = RLock()

    def process_ends(self) -> None:
        """Do nothing: everything that was sent has its answer."""

    def __repr__(self) -> str:
        return f"<RemoteEngine {self._where}>"
