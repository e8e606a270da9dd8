"""Values by key, which several processes may change. Each is a mark with a random number as its
version.

A short value is in the mark. A longer one is a message of a topic, sent in the same transaction;
the version is its key, and the mark has its offset, once that is known. So every change is one
append. It succeeds only if the value still has the version that the writer expects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from hashlib import blake2b
from random import SystemRandom
from struct import Struct

from fmq import Mark, Message
from fmq.basics.clock import SystemClock
from fmq.compat.handle import Handle
from fmq.errors import MarkMoved, OffsetGone

NONE_YET = -1  # the version of a key without a value
SHORT_BYTES = 64 - 9  # what a mark of 64 bytes has room for
NAME_BYTES_MAX = 255
# Which message has the value, and when the value expires, in microseconds since 1970 (0: never).
HEAD = Struct("<BQ")
HERE, SENT, AT = 0, 1, 2
OFFSET = Struct("<Q")
REMOVED_AT_ONCE = 1000
# How many messages are read at a time to find one whose offset is not known.
LOOK_BACK = 1000
clock, random = SystemClock(), SystemRandom()


class Values:
    """Values by key in one directory, under names that begin with `prefix`."""

    def __init__(
        self,
        engine: Callable[[], Handle],
        prefix: str,
        topic: str,
        draw: Callable[[int], int] = random.getrandbits,
    ) -> None:
        """`engine` returns the engine. `topic` has one queue, and takes the longer values.
        `draw(n)` returns n random bits.
        """
        self._get_engine = engine
        self._draw = draw
        self._prefix = prefix
        self._topic = topic

    @property
    def _engine(self) -> Handle:
        return self._get_engine()

    def put(
        self, key: str, value: bytes, *, expect: int | None = None, expires_us: int = 0
    ) -> bool:
        """Set a value. Return False if its present version is not `expect`."""
        version, name, tx = self._draw(64), self._name(key), self._engine.transaction()
        is_short = len(value) <= SHORT_BYTES
        data = HEAD.pack(HERE if is_short else SENT, expires_us) + (value if is_short else b"")
        tx.mark(name, version, data, expect)
        if not is_short:
            tx.send(self._topic, value, key=f"{version:x}", headers={"key": key})
        try:
            receipts = tx.commit()
        except MarkMoved:
            tx.rollback()
            return False
        if not is_short:
            self._note_offset(name, version, HEAD.pack(AT, expires_us), receipts[0].offset)
        return True

    def _note_offset(self, name: str, version: int, head: bytes, offset: int) -> None:
        """Note the offset of a value, without a sync: if the note is lost, readers search for the
        value.
        """
        tx = self._engine.transaction()
        tx.mark(name, version, head + OFFSET.pack(offset), version)
        try:
            tx.commit(sync=False)
        except MarkMoved:
            tx.rollback()  # another value has replaced the one that was read

    def get(self, key: str) -> bytes | None:
        """Return the value of `key`; None if it has none."""
        found = self._read(self._engine.mark(self._name(key)))
        return None if found is None else found[1]

    def get_many(self, keys: Iterable[str]) -> dict[str, bytes]:
        """Return the values of all `keys` that have one."""
        names = {self._name(key): key for key in keys}
        marks = self._engine.marks(*names)
        found = {names[name]: self._read(mark) for name, mark in marks.items()}
        return {key: value[1] for key, value in found.items() if value is not None}

    def has(self, key: str) -> bool:
        """Return whether `key` has a value."""
        return self._lives(self._engine.mark(self._name(key)))

    def version(self, key: str) -> tuple[int, bool]:
        """Return the version to expect, and whether the key has a value, which may have expired."""
        mark = self._engine.mark(self._name(key))
        return NONE_YET if mark is None else mark.value, self._lives(mark)

    def pop(self, key: str) -> bytes | None:
        """Remove a value, and return it. Of several calls at the same time only one gets it."""
        name = self._name(key)
        while (found := self._read(mark := self._engine.mark(name))) is not None:
            assert mark is not None
            tx = self._engine.transaction()
            tx.unmark(name, mark.value)
            try:
                tx.commit()
            except MarkMoved:
                tx.rollback()
                continue
            return found[1]
        return None

    def items(self) -> dict[str, bytes]:
        """Return all keys and values."""
        found = {}
        for name, mark in self._engine.marks(prefix=self._prefix).items():
            value = self._read(mark)
            if value is not None:
                message, body = value
                headers = {} if message is None else message.headers or {}
                found[headers.get("key", name.removeprefix(self._prefix))] = body
        return found

    def count(self) -> int:
        """Return how many values there are."""
        marks = self._engine.marks(prefix=self._prefix)
        return sum(self._lives(mark) for mark in marks.values())

    def clear(self) -> None:
        """Remove all values, except those that are put meanwhile."""
        names = [*self._engine.marks(prefix=self._prefix)]
        for at in range(0, len(names), REMOVED_AT_ONCE):
            tx = self._engine.transaction()
            for name in names[at : at + REMOVED_AT_ONCE]:
                tx.unmark(name)
            tx.commit()

    # --- one value ------------------------------------------------------------------------------

    def _name(self, key: str) -> str:
        """Return the name of the mark of `key`. A key that is too long for a name is hashed."""
        name = self._prefix + key
        if len(name.encode()) <= NAME_BYTES_MAX:
            return name
        return f"{self._prefix}#{blake2b(key.encode(), digest_size=16).hexdigest()}"

    def _lives(self, mark: Mark | None) -> bool:
        if mark is None:
            return False
        _, expires_us = HEAD.unpack_from(mark.data)
        return not expires_us or clock.time_us() < expires_us

    def _read(self, mark: Mark | None) -> tuple[Message | None, bytes] | None:
        """Return the message and the value; None if there is no value, or retention dropped it."""
        if mark is None or not self._lives(mark):
            return None
        where, _ = HEAD.unpack_from(mark.data)
        if where == HERE:
            return None, mark.data[HEAD.size :]
        wanted = f"{mark.value:x}"
        for message in self._messages(mark.data[HEAD.size :]):
            if message.key == wanted:
                return message, message.body
        return None

    def _messages(self, offset: bytes) -> Iterator[Message]:
        """Yield the message at `offset`; if the offset is not known, all messages, the newest
        first.
        """
        engine, topic = self._engine, self._topic
        with suppress(OffsetGone):
            if offset:
                yield from engine.read(topic, offset=OFFSET.unpack(offset)[0], limit=1)
                return
            (queue,) = engine.queues(topic)
            end = queue.next
            while end > queue.first:
                first = max(queue.first, end - LOOK_BACK)
                yield from reversed(engine.read(topic, offset=first, limit=end - first))
                end = first
