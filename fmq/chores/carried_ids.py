"""Carrying message ids over a retention: ids of the window that only dropped segments held.

They are written as an IDS record, in one append with STATE. The cost is bounded: segments are
dropped only if their ids take at most half of the room that this frees, and half of a segment.
Segments with little but ids stay until the ids leave the window.
"""

from __future__ import annotations

from collections.abc import Mapping

from fmq.store.bytes.kinds import IdsKept
from fmq.store.index.catalog import Catalog
from fmq.store.index.id_table import ROW_BYTES, TakenId, table_of
from fmq.store.journal.segment import Segment
from fmq.tx.commands.message_ids import MessageIds
from fmq.tx.commands.writer import Writer

NAME_BYTES = 256  # the largest size of a topic's name


class IdCarrier:
    """Finds the message ids that a retention has to carry forward."""

    def __init__(self, writer: Writer, catalog: Catalog, message_ids: MessageIds) -> None:
        self._writer = writer
        self._catalog = catalog
        self._message_ids = message_ids
        self._deleted: Mapping[str, int] = {}

    def fitting(self, segments: list[Segment]) -> list[Segment]:
        """Return the oldest of `segments`, as many as one retention can drop while it carries their
        ids at a bounded cost.
        """
        while segments:
            size = _size_of(self._rows(segments))
            freed = sum(segment.capacity for segment in segments)
            if size <= min(freed, self._writer.journal.append_bytes_max) // 2:
                break
            segments = segments[: len(segments) // 2]
        return segments

    def records(self, segments: list[Segment]) -> list[IdsKept]:
        """Return the IDS record to write before `segments` are dropped; none if nothing is lost."""
        rows = self._rows(segments)
        return [IdsKept(table_of(0, rows).encode(), 0)] if rows else []

    def is_current(self) -> bool:
        """Return whether no topic was deleted since the last call of `records`. The caller holds
        the engine's lock.
        """
        return self._deleted == self._writer.ledger.deleted

    def _rows(self, segments: list[Segment]) -> list[TakenId]:
        self._deleted = deleted = dict(self._writer.ledger.deleted)
        if not any(len(self._catalog.ids(segment.base)) for segment in segments):
            return []
        window = self._message_ids.load()
        now_us = self._writer.clock.time_us()
        with self._writer.commit_queue.lock:
            rows = window.below(segments[-1].limit, now_us)
        return [row for row in rows if row.position >= deleted.get(row.topic, 0)]


def _size_of(rows: list[TakenId]) -> int:
    names = sum(NAME_BYTES for _ in {row.topic for row in rows})
    return len(rows) * ROW_BYTES + names
