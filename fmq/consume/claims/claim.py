"""What one poll takes for a member of a group. Guarded by the engine's lock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from fmq.consume.claims.backoff import Retry
from fmq.store.bytes.internal import is_internal
from fmq.tx.ledger.ledger import Queue

if TYPE_CHECKING:
    from fmq.consume.claims.holds import QueueHolds


class Trier(Protocol):
    """A member of the group."""

    @property
    def retry(self) -> Retry: ...


class Claim:
    """The offsets [first, end) of a queue, or some of them where messages have priorities.

    A delivery can be acked only while the claim that it came with still holds it.
    """

    __slots__ = (
        *("count", "end", "filter", "first", "holds", "member", "now_us", "queue", "ranges"),
    )

    def __init__(
        self,
        member: Trier,
        queue: Queue,
        holds: QueueHolds,
        first: int,
        end: int,
        filter_text: str = "",
        count: int = 0,
    ) -> None:
        self.member = member
        self.queue = queue
        self.holds = holds
        self.first = first
        self.end = end
        self.count = count  # how often each of its messages was tried before
        self.filter = filter_text  # what its group wanted of the topic then; "": all
        self.now_us = 0  # what expires until then is passed over; 0: nothing of it expires
        self.ranges = [(first, end)]  # in the order in which they are handed out

    def add(self, first: int, end: int) -> None:
        """Add a range, which is handed out after those that are there."""
        self.ranges.append((first, end))
        self.first, self.end = min(self.first, first), max(self.end, end)

    def may_have_expired(self, now_us: int) -> bool:
        """Return whether a message of it may have expired by now. A dead letter that was replayed
        does not expire.
        """
        spans = self.queue.spans
        return (
            spans is not None
            and not is_internal(self.queue.topic)
            and any(spans.may_have_expired(*each, now_us) for each in self.ranges)
        )
