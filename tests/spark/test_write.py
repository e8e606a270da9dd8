"""Rows that Spark writes: a job is one transaction, there once however often it is done."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

import fmq
from fmq.spark.write_options import parse_write
from fmq.spark.writers import BatchWriter, TaskDone
from tools.spark_streams import ended


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[fmq.Engine]:
    """An engine that serves the directory of the sink."""
    with fmq.open(tmp_path / "sink") as engine, engine.serve():
        yield engine


def numbers(spark: SparkSession, count: int) -> DataFrame:
    """Return rows in two partitions."""
    return spark.range(0, count, 1, 2).selectExpr("cast(id as string) as body")


def write(rows: DataFrame, engine: fmq.Engine, mode: str = "append", **options: str) -> None:
    options = {"topic": "out", **options}
    rows.write.format("fmq").mode(mode).options(**options).save(str(engine.path))


def bodies(engine: fmq.Engine) -> list[int]:
    if not engine.queues("out"):
        return []
    return [int(message.body) for message in engine.read("out", limit=1_000_000)]


def test_a_job_is_one_transaction_and_there_once(spark: SparkSession, engine: fmq.Engine) -> None:
    """A few rows, which the commit sends, and many, which both tasks prepare."""
    for value, count in (("1", 10), ("2", 4000), ("2", 4000)):
        write(numbers(spark, count), engine, mark="m", markValue=value, partBytes="10000")
        assert engine.undecided() == []
    assert bodies(engine) == [*range(10), *range(4000)]
    assert engine.mark("m") == fmq.Mark(2)


def test_a_job_whose_task_fails_leaves_nothing(spark: SparkSession, engine: fmq.Engine) -> None:
    """One partition fails in its middle; what the other one has prepared is rolled back, at the
    latest by the next job: Spark may not know yet that it has done its part.
    """
    path = str(engine.path)

    def fails(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.column("body")[0].as_py() == "0":
                yield batch
                continue
            yield batch.slice(0, 10)
            with fmq.connect(path, start=False) as client:
                while not client.undecided():
                    pass  # the other task might prepare its rows behind the next job
            raise RuntimeError("a task dies")

    rows = numbers(spark, 4000)
    rows = rows.mapInArrow(fails, rows.schema)
    with pytest.raises(Exception, match="a task dies"):
        write(rows, engine, mark="m", markValue="1", partBytes="10000")
    assert (bodies(engine), engine.mark("m")) == ([], None)
    write(numbers(spark, 10), engine, mark="m", markValue="2")
    assert (bodies(engine), engine.undecided()) == ([*range(10)], [])


def writer_of(path: Path | str, mark: str | None, **others: str) -> BatchWriter:
    options = {"path": str(path), "topic": "out", **others}
    if mark is not None:
        options = {"mark": mark, "markValue": "1", **options}
    return BatchWriter(
        parse_write(options, streaming=False), StructType().add("body", "string"), False
    )


def task_of(writer: BatchWriter) -> TaskDone:
    """Prepare rows, as a task does in another process. Return what it tells the driver."""
    there: BatchWriter = pickle.loads(pickle.dumps(writer))
    of = there._options.mark, there._options.value, there._attempt
    with there._job(*of, "0") as job:
        rows = pa.table({"body": ["1", "2", "3"]}).to_batches()
        return TaskDone(job.write(rows, "out", hold_bytes=0), *of)


@pytest.mark.parametrize("mark", ["m", None])
def test_an_abort_settles_its_attempt_of_which_no_task_has_told(
    engine: fmq.Engine, mark: str | None
) -> None:
    """The task died behind its PREPARE. A commit that comes later is refused, and the attempt of
    another driver is left alone.
    """
    writer, other = writer_of(engine.path, mark), writer_of(engine.path, mark)
    done, others = task_of(writer), task_of(other)
    writer.abort([None])
    assert [each.tx_id for each in engine.undecided()] == [*others.part.prepared]
    with pytest.raises(fmq.AlreadyDecided):
        writer.commit([done])
    assert bodies(engine) == []
    other.commit([others])
    assert bodies(engine) == [1, 2, 3]


@pytest.mark.parametrize("mark", ["m", None])
def test_an_abort_never_rolls_back_what_is_decided(engine: fmq.Engine, mark: str | None) -> None:
    """Spark tells it of the tasks, or of none."""
    writer = writer_of(engine.path, mark)
    done = task_of(writer)
    writer.commit([done])
    told: list[list[WriterCommitMessage | None]] = [[done], [None], []]
    for each in told:
        writer.abort(each)
    assert bodies(engine) == [1, 2, 3]


def test_an_abort_makes_nothing_and_waits_little_where_no_task_was(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A job may fail in an earlier stage, before any task has connected."""
    writer_of(tmp_path / "none", None, retryFor="60").abort([])
    assert not (tmp_path / "none").exists()
    assert "a later job, or a day, rolls back" in caplog.text
    assert "no engine process answered for 5 s" in caplog.text


@pytest.mark.parametrize("told", [False, True])
def test_an_abort_that_reaches_no_engine_leaves_the_error_of_the_task(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, told: bool
) -> None:
    """Spark would show the error of the abort instead. The next job settles what is left."""
    with fmq.open(tmp_path / "sink") as engine:
        writer = writer_of(engine.path, "m", retryFor="0")
        with engine.serve():
            done = task_of(writer_of(engine.path, "m"))
        writer.abort([done if told else None])
        assert "lets no other process in" in caplog.text
        assert [each.tx_id for each in engine.undecided()] == [*done.part.prepared]
        with engine.serve():
            later = writer_of(engine.path, "m", markValue="2")
            later.commit([task_of(later)])
        assert (bodies(engine), engine.undecided()) == ([1, 2, 3], [])


def stream(spark: SparkSession, top: Path, engine: fmq.Engine) -> None:
    """Write what is new in the journal `source` to the sink, and end."""
    rows = spark.readStream.format("fmq").load(str(top / "source")).select("body", "key")
    writer = rows.writeStream.format("fmq").option("topic", "out").trigger(availableNow=True)
    writer = writer.option("checkpointLocation", str(top / "checkpoint"))
    ended(lambda: writer.start(str(engine.path)))


def test_each_batch_of_a_stream_is_there_once(
    spark: SparkSession, tmp_path: Path, engine: fmq.Engine
) -> None:
    """Also one whose driver died between the decision and Spark's own note of it."""
    with fmq.open(tmp_path / "source") as source:
        for number in range(20):
            source.send("in", b"%d" % number, key=f"k{number}")
    stream(spark, tmp_path, engine)
    assert bodies(engine) == [*range(20)]
    assert [message.key for message in engine.read("out", limit=2)] == ["k0", "k1"]
    commits = tmp_path / "checkpoint" / "commits"
    last = max(int(file.name) for file in commits.iterdir() if file.name.isdecimal())
    for name in (str(last), f".{last}.crc"):
        (commits / name).unlink()
    with fmq.open(tmp_path / "source") as source:
        source.send("in", b"20")
    stream(spark, tmp_path, engine)
    assert bodies(engine) == [*range(21)]
    assert [mark.value for mark in engine.marks(prefix="spark/").values()] == [last + 1]
    assert engine.undecided() == []


def test_a_wrong_write_is_refused(spark: SparkSession, engine: fmq.Engine) -> None:
    with pytest.raises(PySparkException, match="a journal cannot be overwritten") as caught:
        write(numbers(spark, 1), engine, "overwrite")
    assert "Nothing was written" in str(caught.value)
    with pytest.raises(PySparkException, match="a message has no id; leave out what is not one"):
        write(spark.range(3), engine)
    assert bodies(engine) == []
