"""Which queues of a topic a poll looks at for a group: those that may have something to hand out.

A queue that a poll has found idle is left out until a message is published to it, something that
was handed out comes again, or a lease ends. Guarded by the engine's lock.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from heapq import heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fmq.consume.holds import QueueHolds


class ReadyQueues:
    """The queues of one topic, by number, as one group sees them."""

    __slots__ = ("_due", "_due_of", "numbers", "reserved")

    def __init__(self, queues: int) -> None:
        self.numbers = [*range(queues)]  # in order: those that may have something
        self._due: list[tuple[float, int]] = []  # a heap: when a lease ends in one that is idle
        self._due_of: dict[int, float] = {}  # the soonest time in the heap, by number
        self.reserved: set[QueueHolds] = set()  # may hold something for a transaction

    def add(self, number: int) -> None:
        """That queue may have something again."""
        numbers = self.numbers
        i = bisect_left(numbers, number)
        if i == len(numbers) or numbers[i] != number:
            numbers.insert(i, number)

    def expire(self, now: float) -> None:
        """Add the queues in which a lease has ended."""
        due = self._due
        while due and due[0][0] <= now:
            self.add(due[0][1])
            self._due_of.pop(due[0][1], None)
            heappop(due)

    def idle(self, i: int, until: float) -> None:
        """`numbers[i]` has nothing to hand out, and none of its leases ends before `until`."""
        number = self.numbers[i]
        if until < self._due_of.get(number, math.inf):
            self._due_of[number] = until
            heappush(self._due, (until, number))
        del self.numbers[i]

    def next_due(self) -> float:
        """Return a time before which no lease ends in any idle queue."""
        return self._due[0][0] if self._due else math.inf
