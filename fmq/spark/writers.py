"""Spark's writers: tasks prepare their rows, and the driver decides them all at once.

A writer is pickled: Spark makes it on the driver, and sends it to the tasks and to the process that
commits. So it holds options alone, and each call connects by itself.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

import fmq
from fmq.errors import BadOption, FmqError
from fmq.intake import JobPart, JobUnsure, WriteJob, check_columns
from fmq.spark.write_options import WriteOptions

HOLD_BYTES = 256 << 10
"""So many bytes of rows a task hands to the driver; more it prepares."""
QUERY, RUN, EPOCH = "sql.streaming.queryId", "spark.jobGroup.id", "streaming.sql.batchId"
"""What Spark tells a task of a stream: who it is for, and of which batch."""
ABORT_SECONDS = 5.0
"""So long an abort waits for an engine that no task is known to have reached."""
LOG = logging.getLogger(__name__)
Messages = Sequence[WriterCommitMessage | None]


@dataclass
class TaskDone(WriterCommitMessage):
    """What a task tells the driver."""

    part: JobPart
    mark: str | None
    value: int
    attempt: str


class RowsWriter:
    """What both writers do."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        """Raises BadOption or BadRows."""
        if overwrite:
            raise BadOption(
                "a journal cannot be overwritten: messages are added. Nothing was written; use "
                'mode("append"), or the output mode "append".'
            )
        check_columns(to_arrow_schema(schema, timezone="UTC"), options.topic)
        self._options = options

    @contextmanager
    def _job(
        self,
        mark: str | None,
        value: int,
        attempt: str,
        task: str = "driver",
        *,
        known: bool = True,
    ) -> Iterator[WriteJob]:
        """`known=False`: perhaps there is no engine, so none is started, and the wait is short."""
        options = self._options
        with fmq.connect(
            options.where,
            start=known and not options.is_address,
            retry_for=options.retry_for if known else min(options.retry_for, ABORT_SECONDS),
            token_file=options.token_file,
            tls_ca=options.tls_ca,
        ) as engine:
            yield WriteJob(engine, mark, value, attempt, f"{task}-{os.urandom(6).hex()}")

    def _write(
        self, rows: Iterator[pa.RecordBatch], mark: str | None, value: int, attempt: str
    ) -> TaskDone:
        with self._job(mark, value, attempt, str(_context().partitionId())) as job:
            part = job.write(
                rows,
                self._options.topic,
                hold_bytes=HOLD_BYTES,
                part_bytes=self._options.part_bytes,
            )
        return TaskDone(part, mark, value, attempt)

    def _commit(self, messages: Messages) -> None:
        done = _done(messages)
        if len(done) < len(messages):
            raise JobUnsure("a task has not said what it has written. Nothing was committed.")
        if done:
            first = done[0]
            with self._job(first.mark, first.value, first.attempt) as job:
                job.commit([each.part for each in done])

    def _abort(self, messages: Messages, mark: str | None, value: int, attempt: str) -> None:
        """Spark calls this after a commit that died behind its decision, too. So nothing is rolled
        back that is decided. An error here would hide the one for which Spark gives up.
        """
        done = _done(messages)
        try:
            with self._job(mark, value, attempt, known=bool(done)) as job:
                job.abort(each.part for each in done)
        except FmqError as error:
            LOG.warning(
                "a later job, or a day, rolls back what this one may have prepared: %s", error
            )


class BatchWriter(RowsWriter, DataSourceArrowWriter):
    """Writes the rows of a job: one transaction, however many they are."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        super().__init__(options, schema, overwrite)
        self._attempt = uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskDone:
        options = self._options
        return self._write(iterator, options.mark, options.value, self._attempt)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        # A task may have prepared rows and told nothing.
        self._abort(messages, self._options.mark, self._options.value, self._attempt)


class StreamWriter(RowsWriter, DataSourceStreamArrowWriter):
    """Writes each batch of a stream: one transaction, whose mark moves to the batch's number."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskDone:
        told = _context().getLocalProperty
        mark = self._options.mark or f"spark/{told(QUERY)}"
        return self._write(iterator, mark, int(str(told(EPOCH))), str(told(RUN)))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self._commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        if done := _done(messages):  # only tasks know the run of the query
            self._abort(messages, done[0].mark, done[0].value, done[0].attempt)


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "only a task of Spark writes"
    return context


def _done(messages: Messages) -> list[TaskDone]:
    return [each for each in messages if isinstance(each, TaskDone)]
