"""How far a target is, beside the ends of the queues here. Nothing is claimed or changed."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from fmq.basics.clock import as_datetime
from fmq.relay.source import check_store, ends_below, message_at
from fmq.relay.target import RelayTarget


class RelayedQueue(NamedTuple):
    """One queue of a relay."""

    topic: str
    queue: int
    copied: int
    """The offset of the first message that the target does not have."""
    end: int
    """The offset of the next message that is sent."""
    lag: int
    """How many messages the target does not have."""
    waits_since: datetime | None
    """When the first of these was published; None if the target has all."""


def relayed_queues(engine: Any, target: RelayTarget, topics: list[str]) -> list[RelayedQueue]:
    """Return how far `target` is in each queue of `topics`. A relay may run meanwhile. Raises
    StoreDiffers if the target has messages of another directory.
    """
    place = target.status()
    if place is not None:
        check_store(place, engine.feedback.store)
    found = []
    position = 0 if place is None else place.position
    for (topic, queue), copied in ends_below(engine, topics, position).items():
        (info,) = (each for each in engine.queues(topic) if each.queue == queue)
        first = message_at(engine, topic, queue, copied) if copied < info.next else None
        since = None if first is None else as_datetime(first.time_us)
        lag = max(info.next - copied, 0)
        found.append(RelayedQueue(topic, queue, copied, info.next, lag, since))
    return found
