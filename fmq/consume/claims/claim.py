"""What one poll takes for a member of a group. Guarded by the engine's lock."""

from __future__ import annotations

from typing import NamedTuple

from fmq.consume.claims.hold_map import MemberOwner, Trier
from fmq.consume.claims.holds import QueueHolds
from fmq.store.bytes.internal import is_internal
from fmq.tx.ledger.queues import Queue


class ClaimAsked(NamedTuple):
    """What a poll asks of one topic: up to `limit` messages, or more if a filter may pass over some
    of them.
    """

    group: str
    member: Trier
    filter: str
    """The group's filter of the topic; "" lets all messages through."""
    limit: int
    in_one_piece: bool
    now: float
    deadline: float
    """The end of the lease."""


class Claim(MemberOwner):
    """The messages that one poll takes: the offsets [first, end) of a queue, or, with priorities,
    some of them.

    A delivery can be acked only while the claim that it came with still holds it.
    """

    __slots__ = ("count", "end", "filter", "first", "holds", "now_us", "queue", "ranges", "since")

    def __init__(
        self,
        member: Trier,
        queue: Queue,
        holds: QueueHolds,
        first: int,
        end: int,
        filter_text: str = "",
        count: int = 0,
        since: float = 0.0,
    ) -> None:
        self.member = member
        self.queue = queue
        self.holds = holds
        self.first = first
        self.end = end
        self.count = count  # how often each message was tried before
        self.since = since  # when the poll was, by the monotonic clock
        # The group's filter of the topic when the claim was made; "" lets all messages through.
        self.filter = filter_text
        # Messages that have expired at this time are passed over; 0: none of them expires.
        self.now_us = 0
        self.ranges = [(first, end)]  # in the order of handing out

    def add(self, first: int, end: int) -> None:
        """Add a range. It is handed out after the ranges that are there."""
        self.ranges.append((first, end))
        self.first, self.end = min(self.first, first), max(self.end, end)

    def may_have_expired(self, now_us: int) -> bool:
        """Return whether a message of the claim may have expired by now. Replayed dead letters do
        not expire.
        """
        spans = self.queue.spans
        return (
            spans is not None
            and not is_internal(self.queue.topic)
            and any(spans.may_have_expired(*each, now_us) for each in self.ranges)
        )
