"""The order of the messages of each key in one queue, for a group that keeps it.

A message is handed out when all messages before it of the same key are acked, or are in the same
hands. Until then it is held for nobody. Guarded by the engine's lock.
"""

from __future__ import annotations

from bisect import bisect_left, insort

Key = str | None  # messages without a key are in order among themselves


class KeyOrder:
    """The messages of a queue that were looked at and not acked yet, by key."""

    __slots__ = ("_key_of", "_lines")

    def __init__(self) -> None:
        self._lines: dict[Key, list[int]] = {}  # offsets, in order
        self._key_of: dict[int, Key] = {}

    def __contains__(self, offset: int) -> bool:
        return offset in self._key_of

    def add(self, offset: int, key: Key) -> None:
        """Note that the message at `offset`, which is not acked, has this key."""
        if offset not in self._key_of:
            self._key_of[offset] = key
            insort(self._lines.setdefault(key, []), offset)

    def before(self, offset: int) -> int:
        """Return how many messages of the same key come before it."""
        return bisect_left(self._lines[self._key_of[offset]], offset)

    def after(self, offset: int) -> list[int]:
        """Return the messages of the same key after it; none if it was not looked at."""
        if offset not in self._key_of:
            return []
        line = self._lines[self._key_of[offset]]
        return line[bisect_left(line, offset) + 1 :]

    def remove(self, offset: int) -> list[int]:
        """Forget a message that is acked. Return those of its key that are left, if it was the
        first of them.
        """
        if offset not in self._key_of:
            return []
        key = self._key_of.pop(offset)
        line = self._lines[key]
        i = bisect_left(line, offset)
        del line[i]
        if not line:
            del self._lines[key]
        return [] if i else line[:]
