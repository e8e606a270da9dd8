"""The queues of one topic that may have a message to hand out to one group, or to one member.

A queue that a poll has found idle is left out until a message is published to it, a hold in it is
given back, or a lease in it ends. So a poll does not look at idle queues. Guarded by the engine's
lock.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fmq.consume.claims.holds import QueueHolds
    from fmq.consume.claims.membership import Member


class ReadyQueues:
    """Which queues of a topic a poll of one group looks at."""

    __slots__ = ("_next_end", "_owner", "lease_ends", "numbers", "unleased")

    def __init__(self, queues: Iterable[int], owner: Member | None = None) -> None:
        self._owner = owner  # None: all members of the group
        self.numbers = [*queues]  # of the queues that a poll looks at, sorted
        self.lease_ends: list[tuple[float, int]] = []  # a heap of (when, number) of idle queues
        self._next_end: dict[int, float] = {}  # the soonest of these for each number
        self.unleased: set[QueueHolds] = set()  # with holds of transactions, perhaps

    def add(self, number: int) -> None:
        """Look at this queue in the next polls."""
        if self._owner is not None:
            self._owner.stir()
        numbers = self.numbers
        i = bisect_left(numbers, number)
        if i == len(numbers) or numbers[i] != number:
            numbers.insert(i, number)

    def add_all(self, numbers: Iterable[int]) -> None:
        """Look at these queues, too."""
        for number in numbers:
            self.add(number)

    def drop(self, numbers: Iterable[int]) -> None:
        """Look at these queues no more."""
        gone = {*numbers}
        self.numbers = [number for number in self.numbers if number not in gone]
        self.lease_ends = [end for end in self.lease_ends if end[1] not in gone]
        heapify(self.lease_ends)
        for number in gone:
            self._next_end.pop(number, None)

    def expire(self, now: float) -> None:
        """Add the queues in which a lease has ended."""
        ends = self.lease_ends
        while ends and ends[0][0] <= now:
            self.add(ends[0][1])
            self._next_end.pop(ends[0][1], None)
            heappop(ends)

    def remove_idle(self, i: int, until: float) -> None:
        """Leave out the queue `numbers[i]`, in which no lease ends before `until`."""
        number = self.numbers[i]
        if until < self._next_end.get(number, math.inf):
            self._next_end[number] = until
            heappush(self.lease_ends, (until, number))
        del self.numbers[i]

    def next_lease_end(self) -> float:
        """Return when the next lease in an idle queue ends, or an earlier time."""
        return self.lease_ends[0][0] if self.lease_ends else math.inf
