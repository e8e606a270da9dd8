"""A run that was just published, in memory, for the consumers that sleep until there is one.

Whom a message wakes, asks for this message. It is not read again from the disk then, cut out of
its record and verified: where it came from, it is still.
"""

from __future__ import annotations

from collections.abc import Sequence

from fmq.message import Message, Origin, make_messages
from fmq.store.batch import Batch, batch_of, messages_of
from fmq.store.columns import CARRIED, Columns
from fmq.store.content import Content

FRESH_BYTES_MAX = 64 << 10


class LatestRun:
    """The messages of one record, as they were sent, and where they stand."""

    __slots__ = ("_columns", "_origin", "counts", "offset")
    places = (0,)

    def __init__(self, offset: int, content: Content, origin: Origin) -> None:
        self.offset = offset
        self.counts = (content.count,)
        self._columns = Columns(
            content.count, content.flags, content.columns, content.bodies, content.raw_bytes
        )
        self._origin = origin

    def batch(self, limit: int) -> Batch:
        """Its first messages, at most `limit`, as a read of its record gives them."""
        origin, bodies = self._origin, self._columns.bodies(0, limit)
        return batch_of(origin.topic, origin.queue, self.offset, bodies, self.offset, (self,), 0)

    def messages(
        self, place: int, seed: int, bodies: Sequence[bytes], first: int, low: int
    ) -> list[Message]:
        """What a Stretch gives of the record."""
        if self._columns.flags & CARRIED:
            return messages_of(self._columns, bodies, self._origin, first, low)
        return make_messages(self._origin, low, bodies)
