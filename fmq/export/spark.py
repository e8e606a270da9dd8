"""Making the files of a chunk with Spark: each task makes files of some splits, on any executor.

Parquet is written by the tasks themselves; rows for other formats are handed to Spark's writers.

Executors need fmq, and the same paths: of the journals to read, and of the export to write.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import fmq.spark
from fmq.errors import StorageError, StorageFull
from fmq.export.destination import PART, show
from fmq.export.errors import ExportFailed
from fmq.export.layout import FolderLayout
from fmq.export.plan import packed
from fmq.export.shape import Shape
from fmq.export.tasks import FILES, Tasks, Work
from fmq.spark.types import spark_schema
from fmq.table.extents import SPLIT_BYTES
from fmq.table.split import Split

Told = Callable[[int, int], None]
LOOK_SECONDS = 0.3
OPTIONS = {
    # Settings for other readers of CSV: quotes are doubled, and spaces are part of a value.
    "csv": {
        "header": "true",
        "escape": '"',
        "emptyValue": '""',
        "nullValue": "",
        "ignoreLeadingWhiteSpace": "false",
        "ignoreTrailingWhiteSpace": "false",
    },
    "json": {"ignoreNullFields": "false"},
}
SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Keep rows in their order. With more files than this, Spark would sort them by part.
    "spark.sql.maxConcurrentOutputFileWriters": "256",
}
# Patterns that find the cause in Spark's long error text. The first pattern that matches is nearest
# to the cause.
REASONS = (
    re.compile(r"^(?:\w+\.)*fmq\.[\w.]+: (.+)$", re.MULTILINE),
    re.compile(r"^Caused by: java\.io\.\S+: (.+)$", re.MULTILINE),
    re.compile(r"(\[[A-Z][A-Z_.]+\] .+?)(?: SQLSTATE.*)?$", re.MULTILINE),
    re.compile(r"(.+)"),
)
FULL = ("No space left on device", "File too large", "Disk quota exceeded")


class SparkEngine:
    """Makes the files of chunks with the Spark session that is running, or with a new one."""

    name = "spark"

    def __init__(self, shape: Shape, layout: FolderLayout, *, permissive: bool) -> None:
        self._shape = shape
        self._layout = layout
        self._permissive = permissive
        running = fmq.spark.session("fmq export", spark__ui__showConsoleProgress="false")
        # A session with its own settings, so that the user's session keeps its settings.
        self._session: SparkSession = running.newSession()
        for name, value in SETTINGS.items():
            self._session.conf.set(name, value)

    def make(self, splits: Sequence[Split], staging: str, told: Told) -> None:
        """Write the rows of `splits` to files in the folders `part=...` of `staging`."""
        parts = [tuple(part) for part in packed(splits, SPLIT_BYTES)]
        write = self._make_files if self._shape.format == "parquet" else self._hand_rows_on
        with Counting(self._session, told) as (rows, size):
            tasks = Tasks(parts, self._shape, self._layout, self._permissive, rows, size)
            try:
                write(tasks, staging)
            except (PySparkException, Py4JJavaError) as error:
                raise _failed(error) from error

    def _make_files(self, tasks: Tasks, staging: str) -> None:
        """Write the files in Python tasks, so that no row passes through Java."""
        for made in self._frame(tasks, tasks.files_in(staging), FILES).collect():
            show(staging, made.file)

    def _hand_rows_on(self, tasks: Tasks, staging: str) -> None:
        """Let Spark's own writer make the files, from rows that Python tasks read."""
        rows = self._frame(tasks, tasks.rows_with_parts(), tasks.rows_schema)
        writer = rows.write.format(self._shape.format)
        writer.options(**OPTIONS.get(self._shape.format, {}))
        writer.partitionBy(PART).save(f"file://{staging}")

    def _frame(self, tasks: Tasks, work: Work, schema: pa.Schema) -> DataFrame:
        """Return the results of `work`, one partition for each task."""
        count = len(tasks.splits)
        return self._session.range(0, count, 1, count).mapInArrow(work, spark_schema(schema))


class Counting:
    """Reports rows and bytes while a job runs, as counted by the tasks that have finished."""

    def __init__(self, session: SparkSession, told: Told) -> None:
        self._counters = tuple(session.sparkContext.accumulator(0) for _ in range(2))
        self._told = told
        self._seen = [0, 0]
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> tuple[Any, ...]:
        self._thread.start()
        return self._counters

    def __exit__(self, *error: object) -> None:
        self._done.set()
        self._thread.join()
        self._tell()

    def _run(self) -> None:
        while not self._done.wait(LOOK_SECONDS):
            self._tell()

    def _tell(self) -> None:
        now = [counter.value for counter in self._counters]
        news = [value - seen for value, seen in zip(now, self._seen, strict=True)]
        self._seen = now
        if any(news):
            self._told(*news)


def _failed(error: Exception) -> StorageError:
    """Return the part of Spark's error that states the cause."""
    text = str(error)
    why = next(found[-1] for reason in REASONS if (found := reason.findall(text)))
    kind = StorageFull if any(full in text for full in FULL) else ExportFailed
    return kind(
        f"Spark could not make the files: {why} What was exported before is there as it was. Put "
        "that right and run it again."
    )
