"""A client that connects at its first call, so that a module may make it while it is imported."""

from __future__ import annotations

from collections.abc import Callable
from threading import RLock
from typing import Any

from fmq.errors import Closed
from fmq.remote.remote_engine import RemoteEngine


class UnconnectedEngine(RemoteEngine):
    """Made by `fmq.connect(lazy=True)`. From its first call on it is a RemoteEngine like others."""

    def __init__(self, where: str, connect: Callable[[], RemoteEngine]) -> None:
        self._where = where
        self._connect = connect
        self._connecting = RLock()
        self._closed = False

    def __getattribute__(self, name: str) -> Any:
        # A test may have exchanged the class, to divert its calls: see `fmq.testing.outbox`.
        if type(self) is UnconnectedEngine and not name.startswith("_"):
            if name == "close":
                return self._close
            self._begin()
        return object.__getattribute__(self, name)

    def _begin(self) -> None:
        """Connect, and go on as what that gives."""
        with self._connecting:
            if type(self) is not UnconnectedEngine:
                return  # another thread was faster
            if self._closed:
                raise Closed(f"{self._where}: closed before its first call. Nothing was changed.")
            connected = self._connect()
            # Both are one from now on: callbacks of the connection know the other one.
            self.__dict__ = connected.__dict__
            self.__class__ = RemoteEngine  # type: ignore[assignment]

    def _close(self) -> None:
        with self._connecting:
            if type(self) is UnconnectedEngine:
                self._closed = True
                return
        self.close()

    def _forked(self) -> None:
        """Connect anew in the child of a fork: a thread that was connecting is missing there."""
        self._connecting = RLock()
