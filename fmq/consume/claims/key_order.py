"""The order of the messages of each key in one queue, for a group that keeps this order.

A message may be handed out when all earlier messages of its key are acked, or are handed out
together with it. A message is *out* from the time it is handed out until it is acked, or put back
untried.

    key      offsets in order     state
    "a"      3  7  12             3 is out, so 7 and 12 wait
    "b"      5  6                 none is out, so 5 is free: the next poll gets it

So a poll takes the oldest message whose key has none out.

Keys are read once, in the order of offsets, and kept until the messages are acked. At most
WAITING_MAX messages wait here. While so many wait and none is free, nothing further back is read.
After a restart the order is empty, and is built again by reading.

Guarded by the engine's lock.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable
from heapq import heappop, heappush

from fmq.consume.claims.ranges import Ranges

MessageKey = str | None  # None: messages without a key keep their order among themselves
WAITING_MAX = 32_768
"""How many messages of one queue are kept in memory before they are handed out: some 40 bytes each,
and a text for each key."""


class KeyOrder:
    """The messages of one queue that a group has read and not acked, by key."""

    __slots__ = (
        *("_again", "_first", "_free", "_key_of", "_lines", "_out"),
        *("filter", "looked", "unreadable", "waiting"),
    )

    def __init__(self, looked: int, filter_text: str) -> None:
        """Everything below `looked` is acked. Messages that do not pass the filter are left out."""
        self.filter = filter_text
        # The keys of all messages below this offset were read, except those in `_again`.
        self.looked = looked
        self.waiting = 0  # how many messages wait in `_lines`
        # The offset at which reading failed last; -1: it did not fail.
        self.unreadable = -1
        self._first = 0  # no message below this offset is handed out now
        self._again: Ranges = []  # ranges below `looked` whose keys are to be read again
        # Key -> offsets that are not handed out yet, in order.
        self._lines: dict[MessageKey, list[int]] = {}
        # For each key, the offsets that are handed out now, in order.
        self._out: dict[MessageKey, list[int]] = {}
        self._key_of: dict[int, MessageKey] = {}  # offset -> key, of the messages in `_out`
        # A heap of the first waiting message of each key. Some entries are out of date.
        self._free: list[tuple[int, MessageKey]] = []

    def __contains__(self, offset: int) -> bool:
        """Return whether the message at `offset` is out."""
        return offset in self._key_of

    # --- looking --------------------------------------------------------------------------------

    @property
    def looks_again(self) -> bool:
        """Return whether keys below `looked` are to be read again."""
        return bool(self._again)

    def next_look(self, end: int) -> tuple[int, int] | None:
        """Return the next range below `end` whose keys are to be read."""
        if self._again:
            return self._again[0]
        return (self.looked, end) if self.looked < end else None

    def has_looked(self, first: int, end: int) -> bool:
        """Note that the keys of a range that `next_look` has returned were read. Return False if
        another poll read them before.
        """
        if self._again and self._again[0][0] == first:
            _, stop = self._again.pop(0)
            if end < stop:
                self._again.insert(0, (end, stop))
        elif self.looked == first and not self._again:
            self.looked = end
        else:
            return False
        self.unreadable = -1
        return True

    def look_again(self, first: int, end: int) -> None:
        """Let a later look read the keys of a range again, because they are not known here."""
        self._again.append((first, end))
        self._again.sort()

    def add(self, offset: int, key: MessageKey, *, is_out: bool) -> None:
        """Note that the message at `offset`, which is not acked, has this key."""
        if offset in self._key_of:
            return
        if is_out:
            self._key_of[offset] = key
            insort(self._out.setdefault(key, []), offset)
        else:
            self._wait(offset, key)

    def _wait(self, offset: int, key: MessageKey) -> None:
        line = self._lines.setdefault(key, [])
        if not line or line[-1] < offset:
            line.append(offset)
        elif line[i := bisect_left(line, offset)] == offset:
            return
        else:
            line.insert(i, offset)
        self.waiting += 1
        if line[0] == offset and key not in self._out:
            heappush(self._free, (offset, key))

    # --- handing out ----------------------------------------------------------------------------

    def first_free(self, is_gone: Callable[[int], bool]) -> int | None:
        """Return the offset of the first message that may be handed out. `is_gone` returns whether
        a message is acked or not stored any more.
        """
        free = self._free
        while free:
            offset, key = free[0]
            line = self._lines.get(key)
            if line is None or line[0] != offset or key in self._out:
                heappop(free)
            elif is_gone(offset):
                self._next_of(offset, key)
            else:
                return offset
        return None

    def _next_of(self, offset: int, key: MessageKey) -> None:
        """Remove the first free message, and let the next one of its key be free instead."""
        heappop(self._free)
        line = self._lines[key]
        del line[0]
        self.waiting -= 1
        if line:
            heappush(self._free, (line[0], key))
        else:
            del self._lines[key]

    def take(self, limit: int, is_gone: Callable[[int], bool], *, in_one_piece: bool) -> Ranges:
        """Hand out up to `limit` messages, the oldest first; several of one key go together. Return
        them as ranges, or only the first range if it has to be `in_one_piece`.
        """
        found: Ranges = []
        taken: list[tuple[int, MessageKey]] = []
        while len(taken) < limit and (offset := self.first_free(is_gone)) is not None:
            if found and found[-1][1] == offset:
                found[-1] = found[-1][0], offset + 1
            elif found and in_one_piece:
                break
            else:
                found.append((offset, offset + 1))
            taken.append(self._free[0])
            self._next_of(*taken[-1])
        for offset, key in taken:
            self.add(offset, key, is_out=True)
        return found

    def take_these(self, first: int, end: int) -> list[tuple[int, int, int]]:
        """Hand out the waiting messages of a range, none of which was tried. This looks at every
        key: use it only when a range is claimed again.
        """
        for key, line in [*self._lines.items()]:
            these = line[bisect_left(line, first) : bisect_left(line, end)]
            for offset in these:
                line.remove(offset)
                self.waiting -= 1
                self.add(offset, key, is_out=True)
            if not line:
                del self._lines[key]
        return []

    def may_go(self, offset: int, before: Iterable[int]) -> bool:
        """Return whether a message that was handed out, and that no member holds any more, may be
        handed out again together with the messages in `before`.
        """
        out = self._out[self._key_of[offset]]
        return all(each in before for each in out[: bisect_left(out, offset)])

    def after(self, offset: int) -> list[int]:
        """Return the offsets of later messages of the same key that are handed out now."""
        if offset not in self._key_of:
            return []
        out = self._out[self._key_of[offset]]
        return out[bisect_left(out, offset) + 1 :]

    # --- what is no longer out ------------------------------------------------------------------

    def put_back(self, first: int, end: int) -> None:
        """Let a range that was handed out and not tried wait again."""
        for offset in range(first, end):
            if offset in self._key_of:
                key = self._key_of[offset]
                self._end_out(offset)
                self._wait(offset, key)
            elif offset < self.looked:
                self.look_again(offset, offset + 1)

    def remove(self, first: int, end: int) -> tuple[bool, list[int]]:
        """Forget a range that was acked. Return whether this makes another message free, and for
        each of the keys the first message that is still out.
        """
        is_free, left = False, []
        offsets = range(first, end)
        if len(offsets) > len(self._key_of):
            offsets = [each for each in self._key_of if first <= each < end]  # type: ignore[assignment]
        for offset in offsets:
            if offset in self._key_of:
                key = self._key_of[offset]
                self._end_out(offset)
                out = self._out.get(key)
                if out is not None:
                    left.append(out[0])
                elif key in self._lines:
                    is_free = True
        return is_free, left

    def _end_out(self, offset: int) -> None:
        key = self._key_of.pop(offset)
        out = self._out[key]
        del out[bisect_left(out, offset)]
        if not out:
            del self._out[key]
            if key in self._lines:
                heappush(self._free, (self._lines[key][0], key))

    def drop_below(self, first: int) -> None:
        """Forget messages that are out below `first`: retention has dropped them."""
        if first > self._first:
            self._first = first
            self.remove(0, first)

    def begin_again(self, looked: int, filter_text: str) -> None:
        """The group has another filter: read again the keys of all messages that are not out."""
        self.filter, self.looked, self.unreadable, self.waiting = filter_text, looked, -1, 0
        self._again.clear()
        self._lines.clear()
        self._free.clear()

    def _check(self) -> None:
        assert self.waiting == sum(map(len, self._lines.values()))
        assert sorted(self._key_of) == sorted(each for out in self._out.values() for each in out)
        assert all(line and line == sorted({*line}) for line in self._lines.values())
        free = {key for offset, key in self._free if self._lines.get(key, [-1])[0] == offset}
        assert not {*self._lines} - {*self._out} - free, "a key is free, and no poll would find it"
