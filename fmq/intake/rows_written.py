"""Rows that one process writes: a whole job in one call."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any, NamedTuple
from uuid import uuid4

import pyarrow as pa

from fmq.errors import FmqError
from fmq.intake.job_parts import PART_BYTES, RowsEngine
from fmq.intake.row_columns import ManySent, check_columns, messages_of
from fmq.intake.write_job import WriteJob, check_job_mark


class RowsWritten(NamedTuple):
    """What a call has written."""

    messages: int
    was_there: bool = False
    """Whether nothing was written, because the mark says that it was written before."""


def write(
    engine: RowsEngine, topic: str | None, rows: Any, *, mark: tuple[str, int] | None = None
) -> RowsWritten:
    """Write all `rows` as messages of `topic`, in any number: readers see none or all of them.

    `rows` is a table or a stream of Arrow, with the columns `body`, and if wanted `key`, `tag`,
    `headers`, `queue`, `message_id`, `priority`, `expires_at`, `deliver_at` or `delay`. With None
    for `topic` it is a column, too. With `mark`, a name and a number, the same call again does
    nothing; a larger number is the next job under this name, and a smaller one raises JobPassed.

    Raises BadRows before anything is written.
    """
    check_job_mark(mark)
    reader = pa.RecordBatchReader.from_stream(rows)
    check_columns(reader.schema, topic)
    return write_sent(engine, messages_of(reader, topic), mark=mark)


def write_sent(
    engine: RowsEngine,
    sent: Iterable[tuple[ManySent, int]],
    *,
    mark: tuple[str, int] | None = None,
) -> RowsWritten:
    """Write messages, of which each comes with the bytes that it takes, as `write` does."""
    name, value = check_job_mark(mark)
    job = WriteJob(engine, name, value, uuid4().hex)
    try:
        part = job.write_sent(sent, hold_bytes=PART_BYTES)
        committed = job.commit([part])
    except BaseException:
        with suppress(FmqError):
            job.abort([])
        raise
    return RowsWritten(part.messages) if committed else RowsWritten(0, was_there=True)
