"""What Spark itself shows of a journal, and what it asks of one without need."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import fmq
from tools.spark_streams import caught_up


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Several segments."""
    path = str(tmp_path / "shop")
    with fmq.open(path, fmq.Options(segment_bytes=16 << 10)) as engine:
        for _ in range(20):
            engine.send_many("orders", [b"x" * 400] * 10)
    return path


def test_a_count_of_a_column_of_the_indexes_reads_no_message(
    spark: SparkSession, path: str
) -> None:
    """Each record of a closed segment is damaged here, so whoever reads one of them fails."""
    *closed, _ = sorted(Path(path).glob("*.seg"))
    assert len(closed) > 3
    for segment in closed:
        data = bytearray(segment.read_bytes())
        data[64:] = bytes(len(data) - 64)  # behind the header
        segment.write_bytes(data)
    rows = spark.read.format("fmq").option("columns", "position")
    assert rows.load(path).count() == 200
    assert rows.option("topic", "emails").load(path).count() == 0
    # Spark prunes no columns of a source in Python, so without the option a count reads them all.
    with pytest.raises(PySparkException, match="Unsound"):
        spark.read.format("fmq").load(path).select("position").count()


def test_explain_names_the_format_and_nothing_of_its_options(
    spark: SparkSession, path: str
) -> None:
    """Spark 4.3 asks a source in Python for no text: once this fails, there is one to give."""
    frame: Any = spark.read.format("fmq").option("topic", "orders").load(path)
    said = frame._jdf.queryExecution().explainString(
        spark._jvm.org.apache.spark.sql.execution.ExplainMode.fromString("extended")  # type: ignore[union-attr]
    )
    assert "BatchScan fmq" in said
    assert "orders" not in said


def test_the_progress_says_how_far_behind_a_stream_is(
    spark: SparkSession, path: str, tmp_path: Path
) -> None:
    """A batch waits for enough rows, and the progress has the position that can be read to."""
    options = {"minRecordsPerTrigger": "150", "maxRecordsPerTrigger": "100"}
    rows = spark.readStream.format("fmq").options(**options).load(path)
    writer = rows.writeStream.format("noop").trigger(processingTime="10 milliseconds")
    query = caught_up(writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start)
    try:
        [progress] = [each for each in query.recentProgress if each["numInputRows"]]
    finally:
        query.stop()
    source = progress["sources"][0]
    [read], [there] = (json.loads(source[name]).values() for name in ("endOffset", "latestOffset"))
    with fmq.open(path, read_only=True) as engine:
        assert there["position"] == engine.visible_to
    assert source["numInputRows"] == 100
    assert 0.4 < read["position"] / there["position"] < 0.6
