"""The queues of one topic that may have a message to hand out: to one group, or to one member.

A poll looks only at queues in `numbers`. If it finds nothing to hand out in a queue, the queue is
*idle* and leaves `numbers`. It comes back when

    a message is published to it         the queue calls `add`, once (ledger.Queue.idle)
    a hold in it is given back           QueueHolds.give_back calls `add`
    a lease in it ends                   `expire` finds it in the heap `lease_ends`

An example with four queues: queue 2 has a backlog. A poll finds 0, 1 and 3 empty and removes them,
so the next polls look at queue 2 alone. In queue 1 a consumer holds messages until the time 90.0:
(90.0, 1) is in the heap. The first poll after that time finds queue 1 among `numbers` again.

Guarded by the engine's lock.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from fmq.consume.claims.hold_map import HoldMap

if TYPE_CHECKING:
    from fmq.consume.claims.membership import Member


class ReadyQueues:
    """The queues of a topic that the polls of one group, or of one member, look at."""

    __slots__ = ("_next_end", "_owner", "lease_ends", "numbers", "unleased")

    def __init__(self, queues: Iterable[int], owner: Member | None = None) -> None:
        self._owner = owner  # the member whose polls look at these queues; None: all members
        self.numbers = [*queues]  # the queues that a poll looks at, sorted
        # A heap of (time, number), of idle queues with leases.
        self.lease_ends: list[tuple[float, int]] = []
        self._next_end: dict[int, float] = {}  # number of a queue -> its earliest time in the heap
        self.unleased: set[HoldMap] = set()  # hold maps that may include holds of transactions

    def add(self, number: int) -> None:
        """Let the next polls look at this queue."""
        if self._owner is not None:
            self._owner.stir()
        numbers = self.numbers
        i = bisect_left(numbers, number)
        if i == len(numbers) or numbers[i] != number:
            numbers.insert(i, number)

    def add_all(self, numbers: Iterable[int]) -> None:
        """Let the next polls look at these queues, too."""
        for number in numbers:
            self.add(number)

    def drop(self, numbers: Iterable[int]) -> None:
        """Do not look at these queues any more."""
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
        """Take the queue `numbers[i]` out, because it is idle. No lease in it ends before
        `until`.
        """
        number = self.numbers[i]
        if until < self._next_end.get(number, math.inf):
            self._next_end[number] = until
            heappush(self.lease_ends, (until, number))
        del self.numbers[i]

    def next_lease_end(self) -> float:
        """Return a time before which no lease ends in an idle queue."""
        return self.lease_ends[0][0] if self.lease_ends else math.inf
