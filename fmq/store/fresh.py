"""A run that was just published, in memory, for the consumers that sleep until there is one.

Whom a message wakes, asks for this message. It is not read again from the disk then, cut out of
its record and verified: where it came from, it is still.
"""

from __future__ import annotations

from itertools import repeat

from fmq.message import Origin, messages_read, plain_messages_read
from fmq.store.batch import Batch
from fmq.store.columns import HEADERS, KEYS, TAGS, Columns, Content

FRESH_BYTES_MAX = 64 << 10


class Fresh:
    """The messages of one record, as they were sent, and where they stand."""

    __slots__ = ("_content", "_origin", "offset")

    def __init__(self, offset: int, content: Content, origin: Origin) -> None:
        self.offset = offset
        self._content = content
        self._origin = origin

    def batch(self, limit: int) -> Batch:
        """Its first messages, at most `limit`, as a read of its record gives them."""
        content, origin, offset = self._content, self._origin, self.offset
        columns = Columns(
            content.count, content.flags, content.columns, content.bodies, content.raw_bytes
        )
        bodies = columns.bodies()[:limit]
        if content.flags & (KEYS | TAGS | HEADERS):
            keys, tags = columns.texts()
            nothing = repeat(None)
            messages = messages_read(
                bodies, keys or nothing, tags or nothing, columns.headers() or nothing, offset,
                origin,
            )  # fmt: skip
        else:
            messages = plain_messages_read(bodies, offset, origin)
        return Batch.read(origin.topic, origin.queue, offset, bodies, messages)
