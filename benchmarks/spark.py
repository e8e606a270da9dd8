"""Spark reading a journal, beside what one would do without fmq: `python -m benchmarks.spark`.

The same rows are counted, bodies included, and written out as Parquet, in turn and in one session:
by Spark's writer, and by `fmq export`, which makes folders of topics and days and syncs its files.

    fmq          spark.read.format("fmq"): records of 1,000 messages; and of one, the worst case
    parquet      what Spark itself writes best: the same rows read from Parquet
    row by row   a Python data source that yields what `engine.read` gives, one tuple a message
    pandas       an outbox table in SQLite, read by pandas and handed to Spark
    json         a JSON line a message, bodies in base64

Each first runs until Java has compiled it; then the median of some rounds counts. With `--beside
ROWS ...`, only so many rows are read from a journal and from Parquet, in turn: all of five columns.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import shutil
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any, Literal

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.functions import to_date
from pyspark.sql.types import StructType

import fmq
import fmq.spark
from fmq.export import export

BODY_BYTES = 100
BATCH = 1000
MANY, FEW = 4_000_000, 1_000_000
WARM, ROUNDS = 3, 5
PEER = "Parquet to Parquet"
QUIET = {"spark__ui__enabled": "false", "spark__ui__showConsoleProgress": "false"}
SCHEMA = "topic string, queue int, offset bigint, body binary, time timestamp"
COLUMNS = "topic,queue,offset,body,time"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--directory", type=Path, help="where the files lie")
    parser.add_argument("--beside", type=int, nargs="+", metavar="ROWS")
    asked = parser.parse_args()
    folder = Path(tempfile.mkdtemp(dir=asked.directory))
    spark = fmq.spark.session("benchmark", **QUIET)
    spark.sparkContext.setLogLevel("OFF")
    spark.dataSource.register(RowByRow)
    try:
        bench = Bench(spark, folder, asked.rounds)
        for rows in asked.beside or ():
            bench.read_beside(rows)
        if not asked.beside:
            bench.run()
    finally:
        spark.stop()
        shutil.rmtree(folder)


class Bench:
    """The tables to count and to write, and the figures."""

    def __init__(self, spark: SparkSession, folder: Path, rounds: int) -> None:
        self._spark = spark
        self._folder = folder
        self._rounds = rounds

    def run(self) -> None:
        many = self._journal("many", MANY, BATCH)
        print(f"count, {MANY:,} rows of {BODY_BYTES} B in records of {BATCH:,}")
        self._print_rates(MANY, {
            "fmq": lambda: self._fmq(many).count(),
            f"fmq, only {COLUMNS}": lambda: self._fmq(many, COLUMNS).count(),
        })  # fmt: skip
        print(f"write Parquet, the same {MANY:,} rows")
        self._print_writing(many)
        singles = self._journal("single", FEW, 1)
        few = self._journal("few", FEW, BATCH)
        print(f"count, {FEW:,} rows: the columns {COLUMNS}")
        self._print_rates(FEW, {
            "fmq": lambda: self._fmq(few, COLUMNS).count(),
            "fmq, one message a record": lambda: self._fmq(singles, COLUMNS).count(),
            "parquet": self._bodies(self._parquet(few)),
            "row by row": lambda: self._row_by_row(few).count(),
            "pandas": self._pandas(few),
            "json": self._json(few),
        })  # fmt: skip

    def read_beside(self, rows: int) -> None:
        path = self._journal(f"beside-{rows}", rows, BATCH)
        parquet = self._parquet(path)
        spent: dict[str, list[float]] = {"fmq": [], "parquet": []}

        def of(name: str, table: Callable[[], DataFrame]) -> Callable[[], object]:
            def run() -> None:
                before = processor_seconds()
                through(table())
                spent[name].append(processor_seconds() - before)

            return run

        read = {
            "fmq": of("fmq", lambda: self._fmq(path, COLUMNS)),
            "parquet": of("parquet", lambda: parquet),
        }
        # One time through ten million rows compiles as much as three through a million.
        seconds = in_turn(read, self._rounds, 1 if rows > MANY else WARM)
        tasks = self._fmq(path, COLUMNS).rdd.getNumPartitions()
        print(f"{rows:,} rows, {tasks} tasks: {seconds['fmq']:.2f} s, ", end="")
        ours, theirs = (statistics.median(spent[name][-self._rounds :]) for name in read)
        print(
            f"{seconds['fmq'] / seconds['parquet']:.2f} x Parquet; processor {ours:.2f} s, ", end=""
        )
        print(f"{ours / theirs:.2f} x Parquet", flush=True)

    def _print_rates(self, rows: int, counts: dict[str, Callable[[], object]]) -> None:
        seconds = in_turn(counts, self._rounds)
        first = seconds["fmq"]
        for name, took in seconds.items():
            print(f"  {name:44} {rows / took:12,.0f} rows/s   fmq is {took / first:5.2f} x")

    def _print_writing(self, many: str) -> None:
        source = str(self._folder / "source.parquet")
        target = str(self._folder / "target.parquet")
        self._fmq(many).write.parquet(source)
        read = self._spark.read
        tasks = read.parquet(source).rdd.getNumPartitions()
        seconds = in_turn(
            {
                "fmq export --engine spark": lambda: self._export(many, "spark"),
                "fmq export --engine arrow, one process": lambda: self._export(many, "arrow"),
                "write.parquet of fmq, a file a segment": lambda: write(self._fmq(many), target),
                # Spark reads Parquet in larger parts, and so writes fewer files.
                "write.parquet of fmq, as many files": lambda: write(
                    self._fmq(many).coalesce(tasks), target
                ),
                PEER: lambda: write(read.parquet(source), target),
                f"{PEER}, topics and days": lambda: write(
                    read.parquet(source).withColumn("date", to_date("time")),
                    target,
                    "topic",
                    "date",
                ),
            },
            self._rounds,
        )
        for name, took in seconds.items():
            print(f"  {name:44} {took:12.2f} s   {took / seconds[PEER]:5.2f} x")

    def _export(self, path: str, engine: Literal["spark", "arrow"]) -> None:
        out = str(self._folder / "archive")
        shutil.rmtree(out, ignore_errors=True)
        export(path, out, engine=engine)

    # --- the subjects -----------------------------------------------------------------------

    def _journal(self, name: str, rows: int, batch: int) -> str:
        path = str(self._folder / name)
        with fmq.open(path, fmq.Options(sync="never")) as engine:
            for bodies in batches(rows, batch):
                engine.send_many("orders", bodies)
        return path

    def _fmq(self, path: str, columns: str | None = None) -> DataFrame:
        reader = self._spark.read.format("fmq")
        return (reader.option("columns", columns) if columns else reader).load(path)

    def _parquet(self, path: str) -> DataFrame:
        target = str(self._folder / "few.parquet")
        write(self._fmq(path, COLUMNS), target)
        return self._spark.read.parquet(target)

    @staticmethod
    def _bodies(table: DataFrame) -> Callable[[], object]:
        # Counting Parquet alone would read no column at all.
        return lambda: table.selectExpr("sum(length(body))", "max(offset)", "max(time)").collect()

    def _row_by_row(self, path: str) -> DataFrame:
        return self._spark.read.format("row by row").load(path)

    def _pandas(self, path: str) -> Callable[[], object]:
        import pandas

        database = sqlite3.connect(self._folder / "outbox.db")
        database.execute("create table outbox (topic, queue, id integer primary key, body)")
        database.executemany(
            "insert into outbox (topic, queue, body) values (?, ?, ?)",
            (("orders", 0, body) for bodies in batches(FEW, BATCH) for body in bodies),
        )
        database.commit()

        def count() -> object:
            frame = pandas.read_sql("select * from outbox", database)
            return self._spark.createDataFrame(frame).count()

        return count

    def _json(self, path: str) -> Callable[[], object]:
        file = self._folder / "messages.jsonl"
        bodies = chain.from_iterable(batches(FEW, BATCH))
        with file.open("w") as lines:
            for offset, body in enumerate(bodies):
                text = base64.b64encode(body).decode()
                row = {"topic": "orders", "queue": 0, "offset": offset, "body": text}
                lines.write(json.dumps(row) + "\n")
        schema = "topic string, queue int, offset bigint, body binary"
        return self._bodies_of_json(self._spark.read.schema(schema).json(str(file)))

    @staticmethod
    def _bodies_of_json(table: DataFrame) -> Callable[[], object]:
        return lambda: table.selectExpr("sum(length(body))", "max(offset)").collect()


class RowByRow(DataSource):
    """What one writes who has only `engine.read`."""

    @classmethod
    def name(cls) -> str:
        return "row by row"

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        return RowByRowReader(self.options["path"])


class RowByRowReader(DataSourceReader):
    def __init__(self, path: str) -> None:
        self._path = path

    def partitions(self) -> list[InputPartition]:
        half = FEW // 2
        return [InputPartition((0, half)), InputPartition((half, FEW))]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        offset, end = partition.value
        with fmq.open(self._path, read_only=True) as engine:
            while offset < end:
                for message in engine.read("orders", offset=offset, limit=1000):
                    yield "orders", 0, message.offset, message.body, message.time
                offset += 1000


def batches(rows: int, batch: int) -> Iterator[list[bytes]]:
    """The same bodies for all, and no two alike: Parquet would write one once."""
    random = Random(7)
    for _ in range(rows // batch):
        data = random.randbytes(batch * BODY_BYTES)
        yield [data[at : at + BODY_BYTES] for at in range(0, len(data), BODY_BYTES)]


# --- measuring ------------------------------------------------------------------------------


def in_turn(
    subjects: dict[str, Callable[[], object]], rounds: int, warm: int = WARM
) -> dict[str, float]:
    """The median of the seconds that each takes, after some that do not count."""
    for run in subjects.values():
        for _ in range(warm):
            run()
    seconds: dict[str, list[float]] = {name: [] for name in subjects}
    for _ in range(rounds):
        for name, run in subjects.items():
            started = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - started)
    return {name: statistics.median(each) for name, each in seconds.items()}


def processor_seconds() -> float:
    """Return what this process and all that it has started have spent: Java, and its workers."""
    parents, spent = dict[int, int](), dict[int, int]()
    for each in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            said = each.read_text().rpartition(")")[2].split()
            pid = int(each.parent.name)
            parents[pid], spent[pid] = int(said[1]), sum(map(int, said[11:15]))
    ours = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in ours} - ours:
        ours |= more
    return sum(spent.get(pid, 0) for pid in ours) / os.sysconf("SC_CLK_TCK")


def through(table: DataFrame) -> None:
    """Read all of it, and write it nowhere."""
    table.write.format("noop").mode("overwrite").save()


def write(table: DataFrame, target: str, *folders: str) -> None:
    writer = table.write.mode("overwrite")
    (writer.partitionBy(*folders) if folders else writer).parquet(target)


if __name__ == "__main__":
    main()
