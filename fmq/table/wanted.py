"""Which rows somebody wants, as ranges, so that nothing is read that can hold none of them.

What is wanted may be more than what was asked for, and never less: whoever asked still looks at
each row. This module knows nothing of Spark, Arrow or files.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from fmq.store.index import LaneKey, LaneSummary

T = TypeVar("T")
LAST = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Range:
    """Whole numbers from `low` to `high`, both included."""

    low: int = 0
    high: int = LAST

    def __and__(self, other: Range) -> Range:
        return Range(max(self.low, other.low), min(self.high, other.high))

    def meets(self, low: int, high: int) -> bool:
        """Whether any of the numbers from `low` to `high` is in here."""
        return self.low <= high and low <= self.high and self.low <= self.high


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the rows have in common; None: anything."""

    topics: frozenset[str] | None = None
    queues: frozenset[int] | None = None
    offset: Range = Range()
    position: Range = Range()
    time_us: Range = Range(-LAST, LAST)

    def __and__(self, other: Wanted) -> Wanted:
        return Wanted(
            _both(self.topics, other.topics),
            _both(self.queues, other.queues),
            self.offset & other.offset,
            self.position & other.position,
            self.time_us & other.time_us,
        )

    def lane(self, key: LaneKey, lane: LaneSummary) -> bool:
        """Whether a queue, as a segment holds it, may have rows that are wanted."""
        topic, queue = key
        return (
            (self.topics is None or topic in self.topics)
            and (self.queues is None or queue in self.queues)
            and self.offset.meets(lane.first, lane.next - 1)
            and self.time_us.meets(lane.first_us, lane.last_us)
        )

    def stretch(self, start: int, end: int) -> bool:
        """Whether records from the position `start` up to `end` may be wanted."""
        return self.position.meets(start, end - 1)


def _both(one: frozenset[T] | None, other: frozenset[T] | None) -> frozenset[T] | None:
    if one is None or other is None:
        return other if one is None else one
    return one & other


EVERYTHING = Wanted()
