"""The latest run of a queue, kept in memory for consumers that wait for messages.

A consumer that is woken by a message asks for that message next. It gets it from here, without
reading it from the disk, cutting it out of its record and verifying it.
"""

from __future__ import annotations

from collections.abc import Sequence

from fmq.basics.message import Message, Origin, make_messages
from fmq.store.bytes.columns import Columns
from fmq.store.bytes.kinds import Run
from fmq.store.reading.batch import Batch, messages_of

LATEST_RUN_BYTES_MAX = 64 << 10


class LatestRun:
    """The messages of one record as they were sent, with their place."""

    __slots__ = ("_columns", "_origin", "counts", "offset")
    places = (0,)

    def __init__(self, run: Run, origin: Origin) -> None:
        self.offset = run.offset
        self.counts = (run.count,)
        self._columns = Columns.of(run)
        self._origin = origin

    def batch(self, limit: int) -> Batch:
        """Return at most `limit` of its first messages, as a batch that was read."""
        origin, bodies = self._origin, self._columns.bodies(0, limit)
        return Batch(origin.topic, origin.queue, self.offset, bodies, self.offset, (self,), 0)

    def messages(
        self, place: int, seed: int, bodies: Sequence[bytes], first: int, low: int
    ) -> list[Message]:
        """Return messages of the record, as a Stretch does."""
        if self._columns.carries():
            return messages_of(self._columns, bodies, self._origin, first, low)
        return make_messages(self._origin, low, bodies)
