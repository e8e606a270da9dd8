#!/usr/bin/env python3
"""The driver of tools/kill_spark_writes.py: a query whose tasks and committers kill themselves.

They do so before and behind what they do, as long as more of such deaths are wanted. A query that
has failed is begun again. Until the file `calm` is there, this program runs on.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import SystemRandom
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import pyarrow as pa
from pyspark import TaskContext
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

import fmq.spark
from fmq.spark.source import DataSource
from fmq.spark.write_options import parse_write
from fmq.spark.writers import EPOCH, RUN, StreamWriter
from tests.spark.conftest import QUIET

ROOT = str(Path(__file__).resolve().parent.parent)
ROWS_OF_A_BATCH = 1000
TWIN_SECONDS = 30
"""So long a slow task waits for its twin."""
FAST_START = {
    # A driver lives for seconds, so its Java compiles little.
    "spark__driver__extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark__executor__extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    # A worker takes a second to import what it needs, and most work for less than that.
    "spark__python__daemon__module": "tools.warm_daemon",
}
SPECULATION = {
    "spark__speculation": "true",
    "spark__speculation__interval": "100ms",
    "spark__speculation__quantile": "0.5",
    "spark__speculation__multiplier": "1.1",
    "spark__speculation__efficiency__enabled": "false",
    "spark__speculation__minTaskRuntime": "500ms",
    "spark__driver__memory": "1g",
    "spark__executor__memory": "1024m",
    "spark__task__maxFailures": "8",
}


class Deaths:
    """What has died, and what is to die, in a file that all processes share."""

    def __init__(self, folder: str) -> None:
        self._said = Path(folder, "deaths")
        self._wanted, self._share = json.loads(Path(folder, "wanted").read_text())

    def note(self, what: str, file_name: str = "deaths") -> None:
        with self._said.with_name(file_name).open("a") as file:
            file.write(f"{what}\n")

    def wants(self, point: str) -> bool:
        """Return whether something may happen at `point` now: it is drawn."""
        known = Counter(self._said.read_text().splitlines() if self._said.exists() else [])
        is_left: bool = known[point] < self._wanted[point]
        return is_left and SystemRandom().random() < self._share

    def die(self, point: str) -> None:
        if self.wants(point):
            self.note(point)
            os.kill(os.getpid(), signal.SIGKILL)

    def has_prepared(self, task: str) -> bool:
        """Wait until another attempt of `task` has prepared its rows. Return False if none does."""
        prepared = self._said.with_name("prepared")
        until = time.monotonic() + TWIN_SECONDS
        while time.monotonic() < until:
            if prepared.exists() and task in prepared.read_text().splitlines():
                return True
            time.sleep(0.05)
        return False


def this_task() -> tuple[str, int]:
    """Return what all attempts of this task have in common, and the number of this one."""
    context = TaskContext.get()
    assert context is not None
    told = context.getLocalProperty
    return f"{told(RUN)} {told(EPOCH)} {context.partitionId()}", context.attemptNumber()


class DyingWriter(StreamWriter):
    """A writer whose processes die."""

    folder = ""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Any:
        deaths = Deaths(self.folder)
        name, attempt = this_task()
        has_twin = False
        is_slow = attempt == 0 and deaths.wants("slow task")
        if is_slow:
            deaths.note("slow task")

        def rows() -> Iterator[pa.RecordBatch]:
            nonlocal has_twin
            for batch in iterator:
                middle = batch.num_rows // 2
                yield batch.slice(0, middle)
                deaths.die("task")
                if is_slow:
                    has_twin = deaths.has_prepared(name)
                yield batch.slice(middle)

        done = super().write(rows())
        deaths.note(name, "prepared")
        if has_twin:
            deaths.note("(slow task that prepared what its twin had prepared)")
        deaths.die("task, prepared")
        return done

    def commit(self, messages: Any, batchId: int) -> None:  # noqa: N803
        deaths = Deaths(self.folder)
        deaths.die("committer")
        super().commit(messages, batchId)
        deaths.die("committer, decided")


class DyingSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "dying"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DyingWriter:  # noqa: N802
        options = dict(self.options)
        folder = options.pop("folder")
        writer = DyingWriter(parse_write(options, streaming=True), schema, overwrite)
        writer.folder = folder
        return writer


def session(folder: Path) -> SparkSession:
    cluster = folder / "master"
    master = cluster.read_text() if cluster.exists() else "local[2,8]"
    os.environ |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": ROOT}
    settings = QUIET | FAST_START | (SPECULATION if cluster.exists() else {})
    spark = fmq.spark.session("kills", master, **settings)
    spark.sparkContext.setLogLevel("OFF")
    print("ready", flush=True)
    return spark


def drive(spark: SparkSession, folder: Path) -> None:
    """Write what is left, as the driver of Spark."""
    spark.dataSource.register(DyingSource)
    rows = spark.readStream.format("fmq").option("maxRecordsPerTrigger", str(ROWS_OF_A_BATCH))
    chosen = rows.load(str(folder / "source")).select("body").repartition(3)
    writer = chosen.writeStream.format("dying").option("topic", "out").trigger(availableNow=True)
    writer = writer.options(partBytes="2000", folder=str(folder))
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    writer = writer.option("tokenFile", str(folder / "token"))
    writer = writer.option("address", (folder / "address").read_text())
    while True:
        last = (folder / "calm").exists()
        query = writer.start()
        with suppress(StreamingQueryException):
            query.awaitTermination()
            if last:
                return


if __name__ == "__main__":
    drive(session(Path(sys.argv[1])), Path(sys.argv[1]))
