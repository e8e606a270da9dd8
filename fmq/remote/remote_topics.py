"""What a client has heard of topics a moment ago, so that it need not ask before each send."""

from __future__ import annotations

from typing import NamedTuple

from fmq.basics.clock import Clock

TOPIC_SECONDS = 5.0  # how long a client may not know of queues that were added


class RemoteTopic(NamedTuple):
    """A topic that the engine process has told about, at the time `since`."""

    name: str
    queues: range
    since: float


class RemoteTopics:
    """The topics that the engine process has told about a moment ago: it may have more queues."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[str, RemoteTopic] = {}

    def get(self, name: str) -> RemoteTopic | None:
        """Return the topic; None if the engine process is to be asked."""
        known = self._known.get(name)
        if known is None or self._clock.monotonic() - known.since > TOPIC_SECONDS:
            return None
        return known

    def note(self, name: str, queues: int) -> None:
        """Note how many queues a topic has."""
        self._known[name] = RemoteTopic(name, range(queues), self._clock.monotonic())

    def forget(self) -> None:
        """Ask about all topics again."""
        self._known.clear()
