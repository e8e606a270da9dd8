"""The rows that a caller wants, as ranges, so that parts of the journal without them are not read.

An index says this for parts of a journal. `fmq/table/exact.py` then compares each row. This module
does not know Spark, Arrow or files.
"""

from __future__ import annotations

from dataclasses import dataclass

from fmq.store.bytes.internal import is_internal
from fmq.store.index.index import LaneSummary, QueueKey

LAST = (1 << 63) - 1
COMPARED = {
    "messages": ("topic", "topics", "queue", "offset", "position", "time"),
    "records": ("topic", "topics", "queue", "position", "time"),
    "transactions": ("position",),
    "marks": ("position", "time"),
    "acks": ("topic", "topics", "queue", "position", "time"),
    "attempts": ("topic", "topics", "queue", "position", "time"),
    "dead_letters": ("topic", "topics", "queue", "offset", "position", "time"),
    "damage": (),
}
"""By view, what can be asked of each row. Not the offset of a record, which holds several messages,
nor the position of damage, which may begin far before what it hides."""


@dataclass(frozen=True, slots=True)
class RowRange:
    """Whole numbers from `low` to `high`, both included."""

    low: int = 0
    high: int = LAST

    def meets(self, low: int, high: int) -> bool:
        """Return whether any number from `low` to `high` is in the range."""
        return self.low <= high and low <= self.high and self.low <= self.high


@dataclass(frozen=True, slots=True)
class Selection:
    """The ranges that wanted rows lie in. None stands for no limit."""

    topics: frozenset[str] | None = None
    queues: frozenset[int] | None = None
    offset: RowRange = RowRange()
    position: RowRange = RowRange()
    time_us: RowRange = RowRange(-LAST, LAST)

    def by_column(self) -> dict[str, frozenset[str] | frozenset[int] | RowRange]:
        """Return the range or value that each column must have. Columns without a limit are left
        out.
        """
        said: dict[str, frozenset[str] | frozenset[int] | RowRange] = {}
        if self.topics is not None:
            said["topic"] = self.topics
        if self.queues is not None:
            said["queue"] = self.queues
        if self.offset != EVERYTHING.offset:
            said["offset"] = self.offset
        if self.position != EVERYTHING.position:
            said["position"] = self.position
        if self.time_us != EVERYTHING.time_us:
            said["time"] = self.time_us
        return said

    def topic(self, topic: str) -> bool:
        """Return whether messages of `topic` may be wanted. Those of fmq's own topics are not."""
        return not is_internal(topic) and (self.topics is None or topic in self.topics)

    def lane(self, key: QueueKey, lane: LaneSummary) -> bool:
        """Return whether the part of a queue in one segment may have wanted rows."""
        topic, queue = key
        return (
            self.topic(topic)
            and (self.queues is None or queue in self.queues)
            and self.offset.meets(lane.first, lane.next - 1)
            and self.time_us.meets(lane.first_us, lane.last_us)
        )

    def stretch(self, start: int, end: int) -> bool:
        """Return whether records from the position `start` up to `end` may be wanted."""
        return self.position.meets(start, end - 1)


EVERYTHING = Selection()
