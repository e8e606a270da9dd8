"""The priorities and expiries of a queue's messages, by spans of 4,096 offsets.

For each span the engine keeps the priorities that occur in it, and the earliest expiry. So a poll
finds where a message of some priority may be, without a look at the messages between. The priority
of each single message is kept for the spans that were written or read last. For other spans it is
read when a poll needs it.

So a queue takes at most 32 bytes for each 4,096 messages, and an engine 4 MiB for the priorities of
single messages. A queue has no spans before a message with a priority or an expiry. Guarded by the
engine's lock.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from operator import or_

from fmq.store.bytes.extras import NEVER, NO_PRIORITY, PRIORITY_MAX, Extras

SPAN_BITS = 12
SPAN = 1 << SPAN_BITS
KNOWN_SPANS_MAX = 1024  # how many spans are known message by message: each takes 4 KiB
UNREADABLE = bytes((NO_PRIORITY,))
# The mask of a span in which no message has a priority above 0.
LOWEST = 1


class Spans:
    """Numbers noted for spans, in the order of the spans. Not every span has one."""

    __slots__ = ("_merge", "numbers", "values")

    def __init__(self, merge: Callable[[int, int], int]) -> None:
        """`merge` combines the number noted for a span with a further one."""
        self._merge = merge
        self.numbers = array("Q")
        self.values = array("q")

    def find(self, number: int) -> int | None:
        """Return the number noted for a span; None if there is none."""
        numbers = self.numbers
        i = len(numbers) - 1
        if i < 0 or numbers[i] < number:
            return None
        if numbers[i] != number:
            i = bisect_left(numbers, number)
            if numbers[i] != number:
                return None
        return self.values[i]

    def note(self, number: int, value: int) -> None:
        """Note `value` for a span, which is usually the last one."""
        numbers, values = self.numbers, self.values
        i = len(numbers)
        if i and numbers[-1] >= number:
            i = bisect_left(numbers, number)
            if numbers[i] == number:
                values[i] = self._merge(values[i], value)
                return
        numbers.insert(i, number)
        values.insert(i, value)

    def drop_below(self, number: int) -> None:
        """Forget the spans before the span `number`."""
        i = bisect_left(self.numbers, number)
        del self.numbers[:i], self.values[:i]

    def since(self, number: int) -> Iterator[tuple[int, int]]:
        """Yield the spans from `number` on, each with the value noted for it."""
        for i in range(bisect_left(self.numbers, number), len(self.numbers)):
            yield self.numbers[i], self.values[i]


class KnownPriorities:
    """The priority of each message, for the spans that were written or looked at last."""

    __slots__ = ("_by_span", "spans_max")

    def __init__(self, spans_max: int = KNOWN_SPANS_MAX) -> None:
        self.spans_max = spans_max
        self._by_span: OrderedDict[tuple[QueueSpans, int], bytearray] = OrderedDict()

    def find(self, spans: QueueSpans, number: int) -> bytearray | None:
        """Return the known priorities of the messages in a span, one byte each, from its first
        offset on. Those of its last messages may be missing.
        """
        found = self._by_span.get((spans, number))
        if found is not None:
            self._by_span.move_to_end((spans, number))
        return found

    def keep(self, spans: QueueSpans, number: int, known: bytearray) -> None:
        """Keep these priorities, and forget the spans that were unused for longest."""
        self._by_span[spans, number] = known
        self._by_span.move_to_end((spans, number))
        while len(self._by_span) > self.spans_max:
            self._by_span.popitem(last=False)


class QueueSpans:
    """The spans of one queue."""

    __slots__ = ("__weakref__", "expiries", "known", "masks")

    def __init__(self, known: KnownPriorities) -> None:
        self.masks = Spans(or_)  # bit n: some message has the priority n
        self.expiries = Spans(min)  # the earliest expiry, in microseconds since 1970
        self.known = known

    def note(self, floor: int, first: int, extras: Extras, count: int) -> None:
        """Note `count` messages from the offset `first` on. The queue begins at `floor`."""
        levels = extras.levels(0, count)
        if self.masks.numbers or (levels is not None and levels.strip(b"\0")):
            for number, low, high in _parts(first, count):
                part = None if levels is None else levels[low - first : high - first]
                self._note_levels(floor, number, low, high, part)
        if extras.expiries_us is not None:
            for number, low, high in _parts(first, count):
                earliest = min(extras.expiries_us[low - first : high - first])
                if earliest != NEVER:
                    self.expiries.note(number, earliest)

    def _note_levels(
        self, floor: int, number: int, low: int, high: int, levels: bytes | None
    ) -> None:
        """Note the priorities of the offsets from `low` up to `high`, which lie in one span."""
        start = number << SPAN_BITS
        before = self.masks.find(number)
        if levels is None or not levels.strip(b"\0"):
            if before is None:
                return
            mask, levels = LOWEST, bytes(high - low)
        else:
            mask = mask_of(levels)
        if before is None and max(start, floor) < low:
            mask |= LOWEST
        self.masks.note(number, mask)
        known = bytearray(low - start) if before is None else self.known.find(self, number)
        if known is not None and len(known) == low - start:
            known += levels
            self.known.keep(self, number, known)

    def know(self, floor: int, first: int, levels: bytearray) -> None:
        """Keep the priorities that were read in a span, of the messages from `first` on. A message
        that was UNREADABLE counts as the lowest priority of the span.
        """
        number = first >> SPAN_BITS
        start = number << SPAN_BITS
        known = self.known.find(self, number) or bytearray()
        if first == max(start, floor):
            # Retention has dropped the messages before `first`, so their priorities do not matter.
            known = known.ljust(first - start, b"\0")
        if len(known) == first - start:
            mask = self.mask(number)
            known += levels.replace(UNREADABLE, bytes(((mask & -mask).bit_length() - 1,)))
            self.known.keep(self, number, known)

    def mask(self, number: int) -> int:
        """Return which priorities occur in a span: bit n stands for the priority n."""
        return self.masks.find(number) or LOWEST

    def next_with(self, level: int, number: int) -> int | None:
        """Return the first span from `number` on with a message of a priority above 0; None if
        there is none.
        """
        for each, mask in self.masks.since(number):
            if mask >> level & 1:
                return each
        return None

    def may_have_expired(self, first: int, end: int, now_us: int) -> bool:
        """Return whether a message from `first` up to `end` may have expired by now."""
        last = end - 1 >> SPAN_BITS
        for number, earliest in self.expiries.since(first >> SPAN_BITS):
            if number > last:
                break
            if earliest <= now_us:
                return True
        return False

    def drop_below(self, first: int) -> None:
        """Forget the spans below the offset `first`, which retention has dropped."""
        self.masks.drop_below(first >> SPAN_BITS)
        self.expiries.drop_below(first >> SPAN_BITS)

    def carried(self, first: int) -> list[list[int]]:
        """Return for JSON what is known from the offset `first` on: spans with their masks, and
        spans with their earliest expiries.
        """
        number = first >> SPAN_BITS
        return [
            [each for pair in spans.since(number) for each in pair]
            for spans in (self.masks, self.expiries)
        ]

    def carry(self, carried: Sequence[Sequence[int]]) -> None:
        """Take over what `carried` returned at an earlier time."""
        for spans, said in zip((self.masks, self.expiries), carried, strict=True):
            for number, value in zip(said[::2], said[1::2], strict=True):
                spans.note(number, value)


def mask_of(levels: bytes) -> int:
    """Return which priorities occur: bit n stands for the priority n."""
    return sum(1 << level for level in {*levels})


def _parts(first: int, count: int) -> Iterator[tuple[int, int, int]]:
    """Cut `count` offsets from `first` on at the bounds of spans. Yield the number of each span,
    and the first and the end of its part.
    """
    end = first + count
    while first < end:
        number = first >> SPAN_BITS
        high = min(end, number + 1 << SPAN_BITS)
        yield number, first, high
        first = high


assert PRIORITY_MAX == 9, "a mask has ten bits"
