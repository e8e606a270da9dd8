"""What an engine says when it is asked: of transactions, queues, groups, and what was settled.

Imported when it is asked: each of these classes takes a good part of a millisecond to make.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from fmq.message import Receipt

OutcomeState = Literal["undecided", "committed", "rolled back"]


@dataclass(frozen=True, slots=True)
class UndecidedTransaction:
    """A sealed transaction that waits for its decision."""

    tx_id: str
    producer: str | None
    prepared_at: datetime
    messages: int
    bytes: int
    topics: tuple[str, ...]
    position: int
    seal: str
    answers: int = 0
    """How often whoever was asked about it could not tell."""
    parked: bool = False
    """Nobody is asked any more, until a person decides or `engine.feedback.resume` is called."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a transaction; of an undecided one, what is known so far."""

    tx_id: str
    state: OutcomeState
    producer: str | None
    prepared_at: datetime
    messages: int
    """How many it has published, or would; 0 if it was rolled back."""
    bytes: int
    """What its messages took when it was prepared, also if it was rolled back."""
    seal: str
    decided_at: datetime | None = None
    decided_by: str | None = None
    reason: str | None = None
    position: int | None = None
    receipts: tuple[Receipt, ...] = ()
    asked: int = 0
    """How many answers to questions about it there were, since its engine was opened."""


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
    """Every message below this offset is acked, or dropped by retention."""
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
