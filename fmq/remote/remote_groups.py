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

    def set_filter(self, group: str, topic: str, wanted: str) -> None:
        """Let `group` want other messages of `topic`."""
        self._link.call("set_filter", group, topic, wanted)

    def delete(self, group: str) -> None:
        """Delete `group`."""
        self._link.call("delete_group", group)
