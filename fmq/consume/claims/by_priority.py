"""The order in which a group is handed a queue whose messages have priorities: 9 first.

Messages of one priority go in the order of their offsets. Messages that were given back go by their
priority, too. The spans of the queue (tx/ledger/spans.py) say which priorities occur where. So a
poll does not look through the backlog, and nothing is kept for each message. If a span has several
priorities, and it is not known which message has which, the poll has to read them first
(SpanWanted). The answers are kept, so a span is read at most once for each priority.

Guarded by the engine's lock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from sortedcontainers import SortedDict

from fmq.store.bytes.extras import PRIORITY_MAX
from fmq.tx.ledger.queues import Queue
from fmq.tx.ledger.spans import SPAN_BITS, QueueSpans

Range = tuple[int, int]
IN_ORDER = -1


class SpanWanted(NamedTuple):
    """The offsets whose priorities a poll has to know before it can choose."""

    queue: Queue
    first: int
    end: int


class Found(NamedTuple):
    """Messages of one priority that may be handed out now. Each was tried `tries` times before."""

    level: int
    first: int
    end: int
    tries: int


class Returned(NamedTuple):
    """Messages that were given back, with the place that they have among the new ones."""

    first: int
    end: int
    tries: int
    behind: int
    """New messages below this offset go first; IN_ORDER: it goes by its own offset."""


class PriorityOrder:
    """The order in which one group is handed the messages of one queue."""

    def __init__(self, queue: Queue, start: int, free: Callable[[int, int], Range | None]) -> None:
        """Nothing from `start` on was handed out before. `free` returns the first range between two
        offsets that is neither acked, nor held, nor waiting for its time.
        """
        self._queue = queue
        self._free = free
        # Cursors by priority. Every message of a priority below its cursor was handed out once.
        self._cursors = [start] * (PRIORITY_MAX + 1)
        self._oldest = start
        # Ranges that were given back, by priority. Some may have been acked or held since.
        self._unread: dict[int, SortedDict[int, int]] = {}
        self._given_back: dict[int, deque[Returned]] = {}
        self._unsorted: list[Returned] = []
        # Ranges from `_oldest` on that were handed out at least once.
        self._not_new: SortedDict[int, int] = SortedDict()

    def put_back(self, first: int, end: int, tries: int = 0, behind: int = IN_ORDER) -> None:
        """Let a range be handed out again, by the priorities of its messages. Among messages of one
        priority it comes after the new ones below `behind`, or, with IN_ORDER, in the order of
        offsets.
        """
        self._unsorted.append(Returned(first, end, tries, behind))
        self._not_new[first] = max(end, self._not_new.get(first, 0))

    def take(self, first: int, end: int) -> None:
        """Note that a range which `best` or `oldest` has returned is handed out."""
        for given_back in self._given_back.values():
            if given_back and given_back[0].first <= first < given_back[0].end:
                whole = given_back.popleft()
                if end < whole.end:
                    given_back.appendleft(whole._replace(first=end))
        for unread in self._unread.values():
            i = unread.bisect_right(first) - 1
            if i >= 0 and unread.peekitem(i)[1] > first:
                _, stop = unread.popitem(i)
                if end < stop:
                    unread[end] = stop

    def take_back(self) -> list[tuple[int, int, int]]:
        """Forget all ranges that were given back. Return those that are free, each with how often
        it was tried.
        """
        ranges = [each[:3] for each in self._all_given_back()]
        for unread in self._unread.values():
            ranges += [(first, end, 0) for first, end in unread.items()]
        self._unread, self._given_back, self._unsorted = {}, {}, []
        return self._still_free(ranges)

    def _all_given_back(self) -> list[Returned]:
        returned = [*self._unsorted]
        for given_back in self._given_back.values():
            returned += given_back
        return returned

    def _still_free(self, ranges: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
        """Return the parts of `ranges` that were neither acked nor handed out since."""
        found = []
        for first, end, tries in ranges:
            while (free := self._free(max(first, self._queue.first), end)) is not None:
                found.append((*free, tries))
                first = free[1]
        return found

    def given_back(self) -> list[tuple[int, int, int]]:
        """Return the ranges that were tried and given back, in their order, each with how often it
        was tried.
        """
        return sorted(self._still_free([each[:3] for each in self._all_given_back() if each.tries]))

    def best(self, most: int) -> Found | SpanWanted | None:
        """Return up to `most` messages of the highest priority that can be handed out."""
        wanted = self._sort()
        if wanted is not None:
            return wanted
        for level in range(PRIORITY_MAX, -1, -1):
            found = self._find(level, most)
            if found is not None:
                return found
        return None

    def oldest(self) -> tuple[int, int] | None:
        """Return the offset of the oldest message that can be handed out, and how often it was
        tried. A message that was given back counts as old as its turn. Call this after `best`.
        """
        found = self._free_new(max(self._oldest, self._queue.first), self._queue.next)
        self._oldest = self._queue.next if found is None else found[0]
        while self._not_new and self._not_new.peekitem(0)[1] <= self._oldest:
            self._not_new.popitem(0)
        lows = [] if found is None else [found[0]]
        lows += [unread[0] for level in self._unread if (unread := self._find_unread(level))]
        new = min(lows, default=None)
        given_back = [each for level in self._given_back if (each := self._find_given_back(level))]
        first = min(given_back, key=_turn, default=None)
        if first is not None and (new is None or first.behind <= new):
            return first.first, first.tries
        return None if new is None else (new, 0)

    def _find(self, level: int, most: int) -> Found | SpanWanted | None:
        new = self._find_new(level, most)
        if isinstance(new, SpanWanted):
            return new
        unread, returned = self._find_unread(level), self._find_given_back(level)
        if new is None or (unread is not None and unread[0] < new[0]):
            new = unread
        if returned is not None and (new is None or returned.behind <= new[0]):
            first, end, tries, _ = returned
            return Found(level, first, min(end, first + most), tries)
        if new is None:
            return None
        first, end = new
        if returned is not None:
            end = min(end, returned.behind)
        return Found(level, first, min(end, first + most), 0)

    # --- what was never handed out ----------------------------------------------------------------

    def _find_new(self, level: int, most: int) -> Range | SpanWanted | None:
        spans, visible = self._spans(), self._queue.next
        at = max(self._cursors[level], self._oldest, self._queue.first)
        while at < visible:
            number = at >> SPAN_BITS
            stop = min(number + 1 << SPAN_BITS, visible)
            mask = spans.mask(number)
            found: Range | None = None
            if mask == 1 << level:
                found = self._free_new(at, stop)
            elif mask >> level & 1:
                known = self._known(number, stop)
                if isinstance(known, SpanWanted):
                    self._cursors[level] = at
                    return known
                found = self._find_in(known, number << SPAN_BITS, level, at, stop, most)
            elif level:
                later = spans.next_with(level, number + 1)
                stop = visible if later is None else later << SPAN_BITS
            if found is not None:
                self._cursors[level] = found[0]
                return found
            at = stop
        self._cursors[level] = at
        return None

    def _find_in(
        self, known: bytearray, base: int, level: int, at: int, stop: int, most: int
    ) -> Range | None:
        """Return the first free messages of priority `level` in a span whose priorities are
        `known`.
        """
        for first, end in _runs_of(known, level, at - base, stop - base, most):
            found = self._free_new(base + first, base + end)
            if found is not None:
                return found
        return None

    def _free_new(self, first: int, end: int) -> Range | None:
        """Return the first range between two offsets that is free and was never handed out."""
        not_new = self._not_new
        while (found := self._free(first, end)) is not None and not_new:
            low, high = found
            i = not_new.bisect_right(low)
            if i and not_new.peekitem(i - 1)[1] > low:
                first = not_new.peekitem(i - 1)[1]
                continue
            return low, min(high, not_new.peekitem(i)[0]) if i < len(not_new) else high
        return found

    def _known(self, number: int, stop: int) -> bytearray | SpanWanted:
        """Return the priorities of the messages of a span, from its first offset up to `stop`."""
        spans, base = self._spans(), number << SPAN_BITS
        known = spans.known.find(spans, number) or bytearray()
        if len(known) < stop - base:
            # Retention may have dropped messages whose priorities are not known.
            return SpanWanted(self._queue, max(base + len(known), self._queue.first), stop)
        return known

    def _spans(self) -> QueueSpans:
        spans = self._queue.spans
        assert spans is not None, "no message of the queue has a priority"
        return spans

    # --- what was given back ----------------------------------------------------------------------

    def _sort(self) -> SpanWanted | None:
        """Sort the ranges that were given back by priority. If priorities have to be read before,
        return which.
        """
        spans = self._spans()
        while self._unsorted:
            first, end, tries, behind = self._unsorted[0]
            first = max(first, self._queue.first)
            if first >= end:
                del self._unsorted[0]
                continue
            number = first >> SPAN_BITS
            stop, mask = min(end, number + 1 << SPAN_BITS), spans.mask(number)
            if mask & mask - 1:
                known = self._known(number, stop)
                if isinstance(known, SpanWanted):
                    return known
                base = number << SPAN_BITS
                for level in {*known[first - base : stop - base]}:
                    for low, high in _runs_of(known, level, first - base, stop - base, stop):
                        self._return(level, Returned(base + low, base + high, tries, behind))
            else:
                self._return(mask.bit_length() - 1, Returned(first, stop, tries, behind))
            self._unsorted[0] = Returned(stop, end, tries, behind)
        return None

    def _return(self, level: int, part: Returned) -> None:
        if part.behind != IN_ORDER:
            self._given_back.setdefault(level, deque()).append(part)
        else:
            unread = self._unread.setdefault(level, SortedDict())
            unread[part.first] = max(part.end, unread.get(part.first, 0))

    def _find_unread(self, level: int) -> Range | None:
        unread = self._unread.get(level)
        while unread:
            first, end = unread.peekitem(0)
            found = self._free_part(first, end)
            if found is not None:
                return found
            unread.popitem(0)
        return None

    def _find_given_back(self, level: int) -> Returned | None:
        given_back = self._given_back.get(level)
        while given_back:
            first, end, tries, behind = given_back[0]
            found = self._free_part(first, end)
            if found is not None:
                return Returned(*found, tries, behind)
            given_back.popleft()
        return None

    def _free_part(self, first: int, end: int) -> Range | None:
        first = max(first, self._queue.first)
        return self._free(first, end) if first < end else None


def _turn(each: Returned) -> tuple[int, int]:
    return each.behind, each.first


def _runs_of(known: bytearray, level: int, at: int, stop: int, most: int) -> Iterator[Range]:
    """Yield the ranges between two places whose priority is `level`, of at most `most` messages
    each.
    """
    at = known.find(level, at, stop)
    while at >= 0:
        end = at + 1
        while end < stop and end - at < most and known[end] == level:
            end += 1
        yield at, end
        at = known.find(level, end, stop)
