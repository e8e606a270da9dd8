"""The messages of one queue by key, for a group with limits by key: the keys take turns.

    key      offsets in order     turn
    "a"      3  7  12  ...        first, if the limit leaves room for "a"
    "b"      5  6                 next

A poll takes one message of each key, from the key on that has waited longest for its turn, and
passes over the keys that have no room. A key that was taken from goes to the end of the line. So a
long backlog of one key does not hold up the others.

Keys are read as for a group that keeps their order (key_order.py), of which this is another form:
a key may have several messages out, and what is given back waits for its turn with the others.

Guarded by the engine's lock.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable

from fmq.consume.claims.key_order import KeyOrder, MessageKey
from fmq.consume.claims.ranges import Ranges, ranges_of

TURNS_WAITING_MAX = 262_144
"""How many messages of one queue are kept in memory before they are handed out. Further back
nobody has a turn."""


class KeyTurns(KeyOrder):
    """The messages of one queue that a group has read and not acked, by key, in turns."""

    __slots__ = ("_turns", "tries")

    def __init__(self, looked: int, filter_text: str) -> None:
        super().__init__(looked, filter_text)
        # The offsets of each key that wait, in order. The key whose turn it is comes first.
        self._turns: dict[MessageKey, deque[int]] = {}
        # Offset of a message that waits for its turn -> how often it was tried.
        self.tries: dict[int, int] = {}

    def key_of(self, offset: int) -> MessageKey:
        """Return the key of a message that is out."""
        return self._key_of.get(offset)

    def _wait(self, offset: int, key: MessageKey) -> None:
        line = self._turns.setdefault(key, deque())
        if not line or line[-1] < offset:
            line.append(offset)
        elif offset < line[0]:
            line.appendleft(offset)
        elif offset in line:
            return
        else:
            insort(line, offset)
        self.waiting += 1

    def wait_again(self, offset: int, tries: int) -> None:
        """Let a message that was given back, and is due, wait for its turn. It was tried `tries`
        times.
        """
        self.tries[offset] = tries
        self.put_back(offset, offset + 1)

    def take_turns(
        self,
        limit: int,
        is_gone: Callable[[int], bool],
        has_room: Callable[[MessageKey], bool],
        took: Callable[[MessageKey], None],
    ) -> tuple[Ranges, int]:
        """Hand out up to `limit` messages. Return them as ranges, and how often each was tried.

        `has_room` says of which keys one more may be handed out; `took` is called for each.
        """
        taken: list[int] = []
        tries = -1
        while len(taken) < limit:
            keys: list[MessageKey] = []
            empty: list[MessageKey] = []
            for key, line in self._turns.items():
                while line and is_gone(line[0]):
                    self.tries.pop(line.popleft(), None)
                    self.waiting -= 1
                if not line:
                    empty.append(key)
                elif has_room(key) and tries in (-1, self.tries.get(line[0], 0)):
                    tries = self.tries.get(line[0], 0)
                    keys.append(key)
                    if len(taken) + len(keys) == limit:
                        break
            for key in empty:
                del self._turns[key]
            for key in keys:
                line = self._turns.pop(key)
                offset = line.popleft()
                self.waiting -= 1
                self.tries.pop(offset, None)
                if line:
                    # The next turn of this key comes after those of all other keys.
                    self._turns[key] = line
                took(key)
                self.add(offset, key, is_out=True)
                taken.append(offset)
            if not keys:
                break
        return ranges_of(taken), max(tries, 0)

    def take_these(self, first: int, end: int) -> list[tuple[int, int, int]]:
        """Hand out the waiting messages of a range. Return the ranges that were tried, each with
        how often it was tried.
        """
        tried = []
        for key, line in [*self._turns.items()]:
            for offset in [each for each in line if first <= each < end]:
                line.remove(offset)
                self.waiting -= 1
                self.add(offset, key, is_out=True)
                if offset in self.tries:
                    tried.append((offset, offset + 1, self.tries.pop(offset)))
            if not line:
                del self._turns[key]
        return tried

    def after(self, offset: int) -> list[int]:
        """Return nothing: a later message of the same key need not wait."""
        return []

    def remove(self, first: int, end: int) -> tuple[bool, list[int]]:
        """Forget a range that was acked. Return whether another message may have its turn now."""
        super().remove(first, end)
        return bool(self._turns), []

    def begin_again(self, looked: int, filter_text: str) -> None:
        """The group has another filter: read again the keys of all messages that are not out."""
        super().begin_again(looked, filter_text)
        self._turns.clear()

    def _check(self) -> None:
        assert self.waiting == sum(map(len, self._turns.values()))
        assert sorted(self._key_of) == sorted(each for out in self._out.values() for each in out)
        assert all(line and [*line] == sorted({*line}) for line in self._turns.values())
