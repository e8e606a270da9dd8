"""Changing groups and topics of an engine in another process."""

from __future__ import annotations

from collections.abc import Callable

from fmq.consume.changing import At
from fmq.remote.link import Link


class RemoteGroups:
    """What the handles of groups and topics ask of the engine process."""

    def __init__(self, link: Link, forget_topics: Callable[[], None]) -> None:
        self._link = link
        self._forget_topics = forget_topics

    def seek(self, group: str, topic: str, number: int | None, at: At) -> None:
        """Let `group` go on elsewhere."""
        self._link.change("seek", group, topic, number, at)

    def skip(self, group: str, topic: str, number: int, offset: int, count: int) -> None:
        """Let `group` pass over messages."""
        self._link.change("skip", group, topic, number, offset, count)

    def set_filter(self, group: str, topic: str, wanted: str) -> None:
        """Let `group` want other messages of `topic`."""
        self._link.change("set_filter", group, topic, wanted)

    def delete(self, group: str) -> None:
        """Delete `group`."""
        self._link.change("delete_group", group)

    def add_queues(self, topic: str, count: int) -> None:
        """Give `topic` more queues."""
        self._link.change("add_queues", topic, count)
        self._forget_topics()

    def retain(self, topic: str, seconds: float | None) -> None:
        """Keep the messages of `topic` for `seconds`."""
        self._link.change("retain", topic, seconds)

    def delete_topic(self, topic: str) -> None:
        """Delete `topic`."""
        self._link.change("delete_topic", topic)
        self._forget_topics()
