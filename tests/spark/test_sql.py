"""Views and tables of Spark SQL, and the small views of a journal."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import fmq
import fmq.table


def test_spark_sql_makes_views_and_tables(spark: SparkSession, tmp_path: Path) -> None:
    """What Spark adds to the options of a table is not taken for an option of fmq."""
    path = str(tmp_path / "shop")
    with fmq.open(path) as engine:
        engine.send_many("orders", [b"one", b"two"])
    options = f"path '{path}', view 'records', columns 'kind,queues'"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW made USING fmq OPTIONS ({options})")
    assert spark.sql("SELECT * FROM made").collect() == [("TOPIC", 1), ("MESSAGE", None)]
    spark.sql(f"CREATE TABLE shop USING fmq OPTIONS ({options}) COMMENT 'a shop'")
    try:
        said = f"path = '{path}', view = 'records', columns = 'kind,queues'"
        assert spark.sql(f"SELECT kind FROM shop WITH ({said})").collect() == [
            ("TOPIC",),
            ("MESSAGE",),
        ]
        with pytest.raises(PySparkException, match="Spark forgets the options of a table"):
            spark.sql("SELECT * FROM shop").collect()
    finally:
        spark.sql("DROP TABLE shop")


@pytest.mark.parametrize("view", ["marks", "acks", "attempts", "dead_letters"])
def test_spark_and_arrow_show_the_same_rows_of_small_views(
    spark: SparkSession, tmp_path: Path, view: str
) -> None:
    path = str(tmp_path / "shop")
    with fmq.open(path) as engine:
        engine.send_many("t", [fmq.Message(b"one", key="k", headers={"a": "b"}), b"two", b"three"])
        with engine.consumer("t", group="g") as consumer, engine.transaction() as tx:
            first, second, third = consumer.poll()
            tx.ack(first)
            tx.mark("page", 2**64 - 1, b"data")
            second.reject("no good")
            third.release(delay=60)
    expected = fmq.table.read(path, view).read_all().to_pylist()
    found = spark.read.format("fmq").option("view", view).load(path).collect()
    assert expected
    assert [shown_by_spark(row.asDict()) for row in found] == [*map(shown_by_spark, expected)]


def shown_by_spark(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with values that can be compared: Spark's times have no zone."""
    row = {
        name: value.replace(tzinfo=None) if isinstance(value, datetime) else value
        for name, value in row.items()
    }
    return row | ({"headers": row["headers"] and dict(row["headers"])} if "headers" in row else {})
