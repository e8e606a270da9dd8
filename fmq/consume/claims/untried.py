"""The offsets of one queue that no member of a group has tried yet.

Nothing was handed out from a cursor on. Before the cursor there are the ranges that were claimed
and given back without an attempt. Guarded by the engine's lock.
"""

from __future__ import annotations

from sortedcontainers import SortedDict

from fmq.consume.claims.hold_map import HoldMap
from fmq.consume.claims.redelivery import Redeliveries
from fmq.tx.ledger.acks import AckSet

Range = tuple[int, int]


class Untried:
    """What a group has not tried of one queue: all but what it has acked, holds or waits to
    redeliver.
    """

    __slots__ = ("_acked", "_holds", "_redeliveries", "_returned", "cursor")

    def __init__(self, acked: AckSet, holds: HoldMap, redeliveries: Redeliveries) -> None:
        self._acked = acked
        self._holds = holds
        self._redeliveries = redeliveries
        # First -> end of ranges given back untried, before the cursor.
        self._returned: SortedDict[int, int] = SortedDict()
        # Nothing from the cursor on was handed out by this engine. What is held there, or was
        # tried, was so when the engine was opened.
        self.cursor = acked.floor

    def take(self, visible: int, first: int, limit: int) -> tuple[int, int, int] | None:
        """Return the next at most `limit` untried offsets in [first, visible), with 0 as their
        number of attempts. The caller adds a hold.
        """
        found = self._find_returned(first) if self._returned else None
        if found is not None:
            low, high = found
            end = min(high, low + limit)
            del self._returned[low]
            if end < high:
                self._returned[end] = high
            return low, end, 0
        found = self.free_range(max(self.cursor, first), visible)
        if found is None:
            return None
        low, high = found
        self.cursor = end = min(high, low + limit)
        return low, end, 0

    def find(self, visible: int, first: int) -> Range | None:
        """Return the range from which `take` would take next. Nothing changes."""
        found = self._find_returned(first) if self._returned else None
        return self.free_range(max(self.cursor, first), visible) if found is None else found

    def _find_returned(self, first: int) -> Range | None:
        """Return the first range of given-back offsets at or after `first`. Forget parts that were
        acked meanwhile.
        """
        returned, acked = self._returned, self._acked
        while returned:
            start, end = returned.popitem(0)
            # Join ranges that one poll had claimed together and that were given back in pieces.
            while returned and returned.peekitem(0)[0] <= end:
                end = max(end, returned.popitem(0)[1])
            gap = acked.gap(max(start, first), end)
            if gap is not None:
                if gap[1] < end:
                    returned[gap[1]] = end
                returned[gap[0]] = gap[1]
                return gap
        return None

    def put_back(self, first: int, end: int) -> None:
        """Let a range that was claimed and not tried be handed out again."""
        self._returned[first] = max(end, self._returned.get(first, 0))

    def remove(self, first: int, end: int) -> None:
        """Remove a range from what was given back untried."""
        returned = self._returned
        for start, stop in [*returned.items()]:
            if start < end and first < stop:
                del returned[start]
                if start < first:
                    returned[start] = first
                if end < stop:
                    returned[end] = stop

    def pop_returned(self) -> list[Range]:
        """Remove and return all ranges that were given back untried, in order."""
        ranges = [*self._returned.items()]
        self._returned.clear()
        return ranges

    def begin_again(self) -> None:
        """Begin again at the first message that is not acked, and take what is free."""
        self._returned.clear()
        self.cursor = self._acked.floor

    def free_range(self, first: int, end: int) -> Range | None:
        """Return the first range between two offsets that is free: neither acked, nor held, nor
        waiting for redelivery.
        """
        holds, redeliveries = self._holds, self._redeliveries
        while (gap := self._acked.gap(first, end)) is not None:
            low, high = gap
            if not holds.is_free_from(low):
                inside, following = holds.find(low), holds.find_next(low)
                if inside is not None:
                    first = inside.end
                    continue
                if following is not None:
                    high = min(high, following.first)
            if low < redeliveries.end:
                waiting = redeliveries.within(low, high)
                if waiting and waiting[0].first <= low:
                    first = waiting[0].end
                    continue
                if waiting:
                    high = waiting[0].first
            return low, high
        return None
