"""A stream and what came out of it, batch by batch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import fmq
from tools.spark_streams import ended


class Stream:
    """Queries one after the other that go on where the checkpoint says."""

    def __init__(self, spark: SparkSession, checkpoint: Path) -> None:
        self.spark = spark
        self.checkpoint = str(checkpoint)
        self.batches: list[list[Row]] = []

    def start(self, path: str, *, now: bool = False, **options: str) -> StreamingQuery:
        """A query that runs until it is stopped, or until it has read what is there now."""
        rows = self.spark.readStream.format("fmq").options(**options).load(path)
        writer = rows.writeStream.option("checkpointLocation", self.checkpoint)
        if now:
            writer = writer.trigger(availableNow=True)
        return writer.foreachBatch(self.take).start()

    def take(self, batch: DataFrame, number: int) -> None:
        self.batches.append(batch.collect())

    def drain(self, path: str, **options: str) -> list[list[Row]]:
        """The batches of a query that ends by itself."""
        before = len(self.batches)
        ended(lambda: self.start(path, now=True, **options))
        return self.batches[before:]

    @property
    def rows(self) -> list[Row]:
        return [row for batch in self.batches for row in batch]

    def by_queue(self) -> dict[tuple[str, int], list[tuple[int, bytes]]]:
        """Offset and body of each message, as they came."""
        found: dict[tuple[str, int], list[tuple[int, bytes]]] = {}
        for row in self.rows:
            found.setdefault((row.topic, row.queue), []).append((row["offset"], bytes(row.body)))
        return found


def shown_by_queue(path: str) -> dict[tuple[str, int], list[tuple[int, bytes]]]:
    """Return what `by_queue` returns, but of all messages, read by an engine."""
    with fmq.open(path, read_only=True) as engine:
        return {
            (queue.topic, queue.queue): [
                (message.offset or 0, bytes(message.body))
                for message in engine.read(
                    queue.topic, queue=queue.queue, offset=queue.first, limit=1_000_000
                )
            ]
            for queue in engine.queues()
        }


def end_offset(query: StreamingQuery) -> dict[str, Any]:
    """Return the offset of the only journal, from the progress."""
    progress = query.lastProgress
    assert progress is not None
    [mark] = json.loads(progress["sources"][0]["endOffset"]).values()
    return dict(mark)
