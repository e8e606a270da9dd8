"""A query that writes each batch as a file; as a process of its own it is killed while it does."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from tools.spark_streams import ended


def run(
    spark: SparkSession, path: str, checkpoint: str, out: Path, killed_at: int | None = None
) -> None:
    """Read what is there, twenty messages a batch."""

    def write(batch: DataFrame, number: int) -> None:
        bodies = [bytes(row.body).decode() for row in batch.collect()]
        (out / str(number)).write_text("\n".join(bodies))
        if number + 1 == killed_at:
            os.kill(os.getpid(), signal.SIGKILL)

    rows = spark.readStream.format("fmq").option("maxRecordsPerTrigger", "20").load(path)
    writer = rows.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)
    ended(writer.trigger(availableNow=True).start)


if __name__ == "__main__":
    import fmq.spark
    from tests.spark.conftest import QUIET

    path, checkpoint, out, killed_at = sys.argv[1:]
    session = fmq.spark.session("child", "local[1]", **QUIET)
    run(session, path, checkpoint, Path(out), int(killed_at))
