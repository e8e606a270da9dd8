"""Moving and deleting groups of an engine in another process."""

from __future__ import annotations

from fmq.consume.changing import At
from fmq.remote.link import Link


class RemoteGroups:
    """What a Group asks of the engine process."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def seek(self, group: str, topic: str, number: int | None, at: At) -> None:
        """Let `group` go on elsewhere."""
        self._link.call("seek", group, topic, number, at)

    def skip(self, group: str, topic: str, number: int, offset: int, count: int) -> None:
        """Let `group` pass over messages."""
        self._link.call("skip", group, topic, number, offset, count)

    def delete(self, group: str) -> None:
        """Delete `group`."""
        self._link.call("delete_group", group)
