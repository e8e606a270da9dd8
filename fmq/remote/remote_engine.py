"""An engine in another process: the calls of `WritingEngine`, through the door of a connection."""

from __future__ import annotations

from typing import cast

from fmq.arguments.names import check_seconds
from fmq.faces.blocking.engine_face import WritingEngine
from fmq.remote.lazy_door import LazyDoor
from fmq.remote.link_door import LinkDoor


class RemoteEngine(WritingEngine):
    """A directory that another process has open. `fmq.connect` makes it. Safe for threads."""

    _door: LinkDoor

    def __init__(self, door: LinkDoor | LazyDoor) -> None:
        self._door = cast(LinkDoor, door)  # a LazyDoor leads to a LinkDoor, and has its methods

    def stop(self, *, timeout: float = 10.0) -> None:
        """Have the engine process end, as `fmq.stop` does, and close this client. The call does not
        wait until the process has ended. Raises Locked if the process runs a program that cannot be
        stopped from outside.
        """
        self._door.stop(check_seconds("timeout", timeout))
        self.close()

    def __repr__(self) -> str:
        return repr(self._door)
