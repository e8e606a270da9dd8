"""What a program asks of one topic: how large it is, and to make it larger."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from fmq.results import QueueInfo


class TopicSteps(Protocol):
    """What changes topics, here or in another process."""

    def add_queues(self, topic: str, count: int) -> None:
        """Give `topic` `count` more queues."""

    def retain(self, topic: str, seconds: float | None) -> None:
        """Keep the messages of `topic` for `seconds`."""

    def delete_topic(self, topic: str) -> None:
        """Delete `topic`."""


class TopicHandle:
    """A topic of an engine, made by `engine.topic`."""

    def __init__(
        self, name: str, changes: TopicSteps, infos: Callable[[str], list[QueueInfo]]
    ) -> None:
        self._name = name
        self._changes = changes
        self._infos = infos

    @property
    def name(self) -> str:
        return self._name

    def queues(self) -> list[QueueInfo]:
        """Return its queues, with their offsets at this instant."""
        return self._infos(self._name)

    def add_queues(self, count: int) -> None:
        """Add `count` queues, which begin empty.

        Messages that are sent with a key may go to another queue than those of the same key before.
        """
        self._changes.add_queues(self._name, count)

    def retain(self, seconds: float | None) -> None:
        """Keep its messages for `seconds`; None: as long as the options say.

        Older ones are gone at once for all readers, even if a group has not acked them. Their bytes
        go with their segment.
        """
        self._changes.retain(self._name, seconds)

    def delete(self) -> None:
        """Delete it with its messages. If a message makes it again, its offsets begin at 0.

        Groups keep their filters, and begin anew. Raises TopicInUse while an undecided transaction
        writes to it, and StillUndecided while one acks its messages.
        """
        self._changes.delete_topic(self._name)

    def __repr__(self) -> str:
        return f"<Topic {self._name!r}>"
