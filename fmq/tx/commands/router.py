"""The queue that a message goes to: the one its caller names, that of its key, or the next
in turn.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sized
from typing import Protocol

from fmq.arguments.names import as_index, check_name, no_queue, no_text
from fmq.store.bytes.content import text_bytes
from fmq.store.bytes.internal import INTERNAL


class KnownTopic(Protocol):
    """A topic as a sender sees it."""

    @property
    def name(self) -> str: ...

    @property
    def queues(self) -> Sized: ...


class KnownTopics(Protocol):
    """The topics that a sender knows, by name."""

    def get(self, name: str, /) -> KnownTopic | None:
        """Return the topic; None if it is not known."""


class Router:
    """Chooses queues. Safe for threads."""

    def __init__(
        self,
        topics: KnownTopics,
        count_of: Callable[[str], int],
        is_begun: Callable[[str], bool],
    ) -> None:
        """`topics` are those that exist. `count_of` tells how many queues a new topic gets, and
        `is_begun` whether messages are on their way to a topic that is new.
        """
        self.topics = topics
        self._count_of = count_of
        self._is_begun = is_begun
        # For each topic, the queue of the last message that had neither key nor queue.
        self._turns: dict[str, int] = {}

    def find(self, topic: str) -> KnownTopic | None:
        """Return the topic; None if it is not known. Raises TypeError if its name is no text."""
        try:
            known = self.topics.get(topic)
        except TypeError:
            raise no_text("topic", topic) from None
        # No caller can name an internal topic: let the check of names refuse it, as any bad name.
        return None if known is not None and known.name[0] == INTERNAL else known

    def target(self, topic: str, key: str | None, queue: int | None) -> tuple[str, int]:
        """Return topic name and queue number for a message. `choose_queue` says which queue."""
        known = self.topics.get(topic) if type(topic) is str else self.find(topic)
        if known is None or topic[0] == INTERNAL:
            return check_name("topic", topic), self.choose_queue(topic, key, queue)
        if queue is None and len(known.queues) == 1:
            return known.name, 0
        return known.name, self.choose_queue(topic, key, queue)

    def has_one_queue(self, topic: str, queue: int | None) -> bool:
        """Return whether all messages of `topic` go to one queue, whatever their keys are."""
        if queue is not None:
            return True
        known = self.find(topic)
        count = self._count_of(check_name("topic", topic)) if known is None else len(known.queues)
        return count == 1

    def name_of(self, topic: str) -> str:
        """Return the name of a topic, which may be new; raise TypeError or BadName."""
        known = self.find(topic)
        return check_name("topic", topic) if known is None else known.name

    def choose_queue(self, topic: str, key: str | None, queue: int | None) -> int:
        """Return the queue for a message: the given one, that of its key, or the next in turn."""
        known = self.find(topic)
        if known is None:
            check_name("topic", topic)
        count = self._count_of(topic) if known is None else len(known.queues)
        if queue is not None:
            queue = as_index("queue", queue)
            if not 0 <= queue < count:
                raise no_queue(topic, queue, count)
            return queue
        if count == 1:
            return 0
        if key is not None:
            return zlib.crc32(text_bytes("key", key)) % count
        if known is None and not self._is_begun(topic):
            return 0
        self._turns[topic] = turn = (self._turns.get(topic, 0) + 1) % count
        return turn

    def check_target(self, topic: str, queue: int | None) -> None:
        """Raise the errors of `choose_queue`, for a call that sends no message."""
        if queue is not None:
            self.choose_queue(topic, None, queue)
        else:
            check_name("topic", topic)
