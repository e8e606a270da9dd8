"""The topics that a client has heard of lately, so that it need not ask before each send."""

from __future__ import annotations

from typing import NamedTuple

from fmq.basics.clock import Clock

# After this time a client asks again, and learns of queues that were added.
TOPIC_SECONDS = 5.0


class RemoteTopic(NamedTuple):
    """A topic, as the engine process told it at the time `since`."""

    name: str
    queues: range
    since: float


class RemoteTopics:
    """The topics that the engine process has told lately. They may have more queues by now."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[str, RemoteTopic] = {}

    def get(self, name: str) -> RemoteTopic | None:
        """Return the topic; None if the engine process has to be asked."""
        known = self._known.get(name)
        if known is None or self._clock.monotonic() - known.since > TOPIC_SECONDS:
            return None
        return known

    def note(self, name: str, queues: int) -> None:
        """Note how many queues a topic has."""
        self._known[name] = RemoteTopic(name, range(queues), self._clock.monotonic())

    def forget(self) -> None:
        """Forget all topics, so that the engine process is asked again."""
        self._known.clear()
