"""The messages of an undecided transaction, which consumers cannot see yet."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from itertools import repeat
from typing import Any

from fmq.machine.disk import Directory
from fmq.recovery.layout import look, read_header
from fmq.recovery.walk import Walk
from fmq.store.bytes.decoding import columns_of
from fmq.store.bytes.kinds import Kind, Run
from fmq.store.journal.files import Files
from fmq.store.reading.reader import Reader

READ_BYTES = 1 << 16
ROWS_AT_ONCE = 1000


def prepared_messages(directory: Directory, position: int) -> Iterator[dict[str, Any]]:
    """Return the messages that the PREPARE at `position` seals, in the order of each queue."""
    walk = Walk(directory, position)
    append = next(iter(walk), [])
    base = max(base for base in look(directory).bases if base <= position)
    seed = zlib.crc32(read_header(directory, base).store)
    files = Files(directory)
    reader = Reader(files, seed, READ_BYTES)
    try:
        for record in append:
            if isinstance(record, Run) and record.kind == Kind.PRE_MESSAGE:
                run, data, at = reader.run_with_bytes(base, record.position - base)
                yield from _rows(run, data, at)
    finally:
        files.close()


def _rows(run: Run, data: bytes, at: int) -> Iterator[dict[str, Any]]:
    columns = columns_of(data, at, run)
    place = {"topic": run.topic, "queue": run.queue}
    nothing = repeat(None)
    for first in range(0, run.count, ROWS_AT_ONCE):
        part = first, first + ROWS_AT_ONCE
        bodies, (keys, tags) = columns.bodies(*part), columns.texts(*part)
        for body, key, tag in zip(bodies, keys or nothing, tags or nothing, strict=False):
            yield place | {"key": key, "tag": tag, "size": len(body), "body": body}
