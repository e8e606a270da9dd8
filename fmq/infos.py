"""What an engine says of itself when it is asked: queues, groups, and what was settled.

Imported when it is asked: each of these classes takes a good part of a millisecond to make.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """One queue at one instant: messages from `first` up to, not including, `next`."""

    topic: str
    queue: int
    first: int
    next: int


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """What a group is done with in one queue, at one instant; only acks that are durable count."""

    group: str
    topic: str
    queue: int
    acked_below: int
    """Every message below this offset is acked."""
    acked_beyond: int
    """How many above it are acked."""
    unread: int
    """How many messages the queue holds that are not acked, those delivered by now included."""


@dataclass(frozen=True, slots=True)
class Settled:
    """What `engine.settle` found out, as tx_ids."""

    committed: tuple[str, ...]
    rolled_back: tuple[str, ...]
    unknown: tuple[str, ...]
    """Asked about, and still undecided."""
    unasked: tuple[str, ...]
    """Parked, or no checker is registered for their producer, or time ran out before an answer."""
