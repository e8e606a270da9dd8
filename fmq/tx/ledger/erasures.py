"""Which messages were erased, as the journal says, and which segments were written to for that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fmq.store.index.index import QueueKey

Range = tuple[int, int]


class Erasures:
    """What was erased, of all queues."""

    def __init__(self) -> None:
        self.number = 0  # the number of the newest ERASE
        # The erased ranges of each queue, sorted. No two of them touch.
        self.ranges: dict[QueueKey, list[Range]] = {}
        # The base of each segment that was written to -> the position of the newest ERASE about it.
        self.segments: dict[int, int] = {}

    def add(self, topic: str, queue: int, first: int, end: int) -> None:
        """Add the offsets from `first` up to `end`, some of which may be known."""
        left: list[Range] = []
        for low, high in self.ranges.get((topic, queue), ()):
            if high < first or end < low:
                left.append((low, high))
            else:
                first, end = min(first, low), max(end, high)
        self.ranges[topic, queue] = sorted([*left, (first, end)])

    def of(self, topic: str, queue: int) -> list[Range]:
        """Return what was erased in a queue."""
        return self.ranges.get((topic, queue), [])

    def forget(self, topic: str) -> None:
        """Forget a topic that is deleted."""
        for key in [key for key in self.ranges if key[0] == topic]:
            del self.ranges[key]

    def carried(self, floor: int, firsts: Mapping[QueueKey, int]) -> list[Any]:
        """Return all for JSON, without what lies below `floor` or the first offset of its queue."""
        ranges = [
            [*key, left]
            for key, known in sorted(self.ranges.items())
            if (left := [[max(low, firsts.get(key, 0)), high] for low, high in known
                         if high > firsts.get(key, 0)])
        ]  # fmt: skip
        segments = [[base, at] for base, at in sorted(self.segments.items()) if base >= floor]
        return [self.number, ranges, segments] if self.number else []

    def carry(self, carried: list[Any]) -> None:
        """Take over what `carried` returned at an earlier time."""
        if carried:
            self.number, ranges, segments = carried
            self.ranges = {
                (topic, queue): [(first, end) for first, end in known]
                for topic, queue, known in ranges
            }
            self.segments = dict(segments)
