"""The messages that a client has in hand, and the request that names them to a new server."""

from __future__ import annotations

from typing import NamedTuple

from fmq.allocation.transfer import say
from fmq.consume.claims.membership import COUNT, DEAD_LETTER, Joining
from fmq.store.reading.batch import Batch
from fmq.wire.values import encode_values


class RemoteQueue(NamedTuple):
    """A queue as a delivery names it: topic and number."""

    topic: str
    number: int


class RemoteClaim:
    """The messages that one poll has brought, as the client knows them.

    The engine process has given them a number, by which the client names them.
    """

    __slots__ = ("attempt", "done", "end", "first", "held", "number", "queue", "spent", "until")

    def __init__(
        self, number: int, queue: RemoteQueue, first: int, end: int, attempt: int, until: float
    ) -> None:
        self.attempt = attempt
        self.until = until  # the end of the lease, by the clock of the client
        self.number = number
        self.queue = queue
        self.first = first
        self.end = end
        # Offsets that were acked or given back, or that are in a transaction.
        self.spent: set[int] = set()
        # First and end -> the object that holds the range for a transaction.
        self.held: dict[tuple[int, int], object] = {}
        # Offsets of `spent` whose ack or return the engine process has confirmed.
        self.done: set[int] = set()


ClaimedBatch = tuple[RemoteClaim, Batch]
"""A claim, and its messages: what a poll has brought from one queue."""


class Membership:
    """A member of a group, with all that a new engine process has to know about it."""

    def __init__(self, asked: Joining) -> None:
        """Raises TypeError for a strategy that another process cannot call."""
        self.asked = asked
        entry = asked.entry
        expired = DEAD_LETTER if entry.buries_expired else COUNT
        self._how = (
            *(None if entry.strategy is None else say(entry.strategy), asked.wanted),
            *(entry.retry.said(), entry.is_ordered, entry.strict, entry.is_told),
            *(asked.broadcast, expired, asked.damaged),
        )
        # Claims that still have messages to ack, by number.
        self.claims: dict[int, RemoteClaim] = {}

    def said(self) -> bytes:
        """Return the payload of a JOIN."""
        claims = []
        for claim in self.claims.values():
            at = claim.first
            for offset in (*sorted(claim.done), claim.end):
                if at < offset:
                    claims.append([claim.number, *claim.queue, at, offset])
                at = offset + 1
        asked = self.asked
        who = [*asked.entry.topics], asked.group, asked.lease_seconds
        return encode_values([*who, claims, asked.entry.name, *self._how])
