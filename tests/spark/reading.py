"""A journal read both ways: through Spark, and as a consumer or the engine shows it."""

from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession

import fmq


class Reader:
    def __init__(self, spark: SparkSession, path: Path) -> None:
        self.spark = spark
        self.path = str(path)

    def view(self, view: str = "messages", **options: str) -> DataFrame:
        reader = self.spark.read.format("fmq").option("view", view)
        return reader.options(**options).load(self.path)

    def rows(self, view: str = "messages", **options: str) -> list[Row]:
        return self.view(view, **options).collect()

    def messages(self) -> list[dict[str, Any]]:
        """Return what Spark shows, by queue and offset."""
        rows = [row.asDict() for row in self.rows()]
        for row in rows:
            row["body"] = bytes(row["body"])
        return sorted(rows, key=lambda row: (row["topic"], row["queue"], row["offset"]))


def shown_by_engine(path: str) -> list[dict[str, Any]]:
    """Return what `messages` returns, but read by an engine, without Spark."""
    with fmq.open(path, read_only=True) as engine:
        return [
            shown(message)
            for queue in sorted(engine.queues(), key=lambda each: (each.topic, each.queue))
            for message in engine.read(
                queue.topic, queue=queue.queue, offset=queue.first, limit=1_000_000
            )
        ]


def shown(message: fmq.Message) -> dict[str, Any]:
    assert message.time is not None
    return {
        "topic": message.topic,
        "queue": message.queue,
        "offset": message.offset,
        "position": message.position,
        "key": message.key,
        "tag": message.tag,
        "headers": message.headers,
        "body": message.body,
        "time": message.time.replace(tzinfo=None),  # as Spark hands out the session's time, UTC
        "tx_id": message.tx_id,
        "producer": message.producer,
        "message_id": message.message_id,
        "priority": message.priority,
        "expires_at": message.expires_at and message.expires_at.replace(tzinfo=None),
        "delayed": False,  # as none was by these tests
    }
