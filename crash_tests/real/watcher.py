"""A reader that lives on while writers die, so that it has files open which recoveries replace.

It looks when a writer has been killed and before the next one recovers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import fmq
from crash_tests.oracle import Lane, Place, Violation
from fmq.engines.read_only_engine import ReadOnlyEngine
from fmq.errors import CheckpointLost, Damaged, NotAStore, OffsetGone


class Watcher:
    """A read-only engine over the store at `path`, opened once and never anew."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._reader: ReadOnlyEngine | None = None
        self._read_to: dict[Lane, int] = {}

    def look(self) -> Iterator[tuple[Place, bytes]]:
        """Yield the messages that are new since the last look. Raises Violation for damage."""
        # Killed before anything was begun, or before the first checkpoint.
        with suppress(NotAStore, CheckpointLost):
            self._reader = self._reader or fmq.open(self._path, read_only=True)
        if self._reader is None:
            return
        queues: list[fmq.QueueInfo] = []
        with suppress(CheckpointLost):
            queues = self._reader.queues()
        for each in queues:
            lane = each.topic, each.queue
            start = max(each.first, self._read_to.get(lane, 0))
            if start == each.next:
                continue
            self._read_to[lane] = each.next
            try:
                # A larger limit would refresh the reader, which would close the file.
                limit = each.next - start
                found = self._reader.read(each.topic, queue=each.queue, offset=start, limit=limit)
            except OffsetGone:
                continue
            except Damaged as error:
                raise Violation("I6", f"who follows over crashes finds {error}") from error
            for offset, message in enumerate(found, start):
                yield (*lane, offset), bytes(message.body)

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
