"""What one large batch of a stream costs in Spark's sink of fmq: `python -m benchmarks.epoch`.

A query reads a journal and writes all its rows into another one, as one batch and so as one
transaction. The engine that it is written to is a process of its own, which looks all the while at
what is visible: nothing, or all rows. Exits with 1 if a look saw something else, or rows differ.

    python -m benchmarks.epoch --rows 1000000
    python -m benchmarks.epoch --rows 1000000 --undecided-mib 64    # is refused
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

import fmq
import fmq.spark
import fmq.table
from benchmarks.jobs import APPEND
from benchmarks.spark import QUIET
from fmq.spark.source import DataSource
from fmq.spark.write_options import parse_write
from fmq.spark.writers import StreamWriter
from tools.spark_streams import ended

BODY = b"%0100d"
LOOK_SECONDS = 0.005
MIB = 1 << 20


class TimedWriter(StreamWriter):
    """A writer that notes how long its commit takes."""

    noted = ""

    def commit(self, messages: Any, batchId: int) -> None:  # noqa: N803
        began = time.perf_counter()
        super().commit(messages, batchId)
        Path(self.noted).write_text(str(time.perf_counter() - began))


class TimedSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "timed"

    def streamWriter(self, schema: StructType, overwrite: bool) -> TimedWriter:  # noqa: N802
        options = dict(self.options)
        noted = options.pop("noted")
        writer = TimedWriter(parse_write(options, streaming=True), schema, overwrite)
        writer.noted = noted
        return writer


def serve(path: str, undecided_mib: int) -> None:
    """Serve until the input ends. Then print what was seen and spent, as JSON."""
    seen, ended, longest = dict[int, int](), threading.Event(), 0.0
    options = fmq.Options(undecided_messages_max=1 << 40, undecided_bytes_max=undecided_mib * MIB)
    with fmq.open(path, options) as engine, engine.serve():

        def look() -> None:
            nonlocal longest
            while not ended.wait(LOOK_SECONDS):
                began = time.perf_counter()
                there = sum(queue.next for queue in engine.queues("out"))
                longest = max(longest, time.perf_counter() - began)
                seen[there] = seen.get(there, 0) + 1

        thread = threading.Thread(target=look)
        thread.start()
        print("ready", flush=True)
        sys.stdin.read()
        ended.set()
        thread.join()
        left = len(engine.undecided())
    spent = resource.getrusage(resource.RUSAGE_SELF)
    said = {"seen": seen, "left": left, "longest": longest}
    said |= {"s": spent.ru_utime + spent.ru_stime, "mib": spent.ru_maxrss >> 10}
    print(json.dumps(said))


def fill(path: str, rows: int) -> float:
    """Write the rows that are read. Return the processor seconds."""
    began = time.process_time()
    with fmq.open(path, fmq.Options(sync="never")) as source:
        for first in range(0, rows, APPEND):
            numbers = range(first, min(rows, first + APPEND))
            source.send_many("in", [BODY % number for number in numbers])
    return time.process_time() - began


def disk(path: str) -> int:
    return sum(each.stat().st_blocks * 512 for each in os.scandir(path)) // MIB


def wrong_rows(path: str, rows: int) -> int:
    """Return how many of the rows are not there once."""
    found = bytearray(rows)
    wrong = 0
    for batch in fmq.table.read(path, columns=["body"]):
        for body in batch.column(0).to_pylist():
            wrong += found[int(body)]
            found[int(body)] = 1
    return wrong + found.count(0)


def run(spark: SparkSession, folder: str, rows: int, undecided_mib: int) -> int:
    """Write the batch. Return 1 if it was refused, or anything is wrong."""
    print(f"{rows:,} rows were written in {fill(f'{folder}/source', rows):.1f} s", flush=True)
    sink = f"{folder}/sink"
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    command = [sys.executable, "-m", "benchmarks.epoch", "--serve", sink]
    engine = subprocess.Popen([*command, "--undecided-mib", str(undecided_mib)], **pipes)
    assert engine.stdout is not None
    engine.stdout.readline()
    spark.dataSource.register(TimedSource)
    stream = spark.readStream.format("fmq").load(f"{folder}/source").select("body")
    writer = stream.writeStream.format("timed").option("topic", "out")
    writer = writer.option("checkpointLocation", f"{folder}/checkpoint")
    writer = writer.option("noted", f"{folder}/noted").trigger(availableNow=True)
    began = time.perf_counter()
    refused = ""
    try:
        query = ended(lambda: writer.start(sink))
    except StreamingQueryException as error:
        refused = str(error)
    took = time.perf_counter() - began
    said = json.loads(engine.communicate()[0])
    if refused:
        said_why = [line for line in refused.splitlines() if line.startswith("fmq.errors.")]
        print("\n".join(said_why[:1]) or refused)
        print(f"rows that looks saw: {[*said['seen']]}; {said['left']} transactions left behind")
        return 1
    batches = [each for each in query.recentProgress if each["numInputRows"]]
    looks = {int(there): times for there, times in said["seen"].items()}
    halves = sum(times for there, times in looks.items() if there not in (0, rows))
    print(f"{len(batches)} batch of {batches[0]['numInputRows']:,} rows in {took:.1f} s, of which")
    print(f"its commit took {float(Path(f'{folder}/noted').read_text()):.1f} s")
    print(f"the engine: {said['s']:.1f} s of processor, at most {said['mib']:,} MiB of memory")
    print(f"on disk: {disk(sink):,} MiB, and {disk(f'{folder}/source'):,} MiB of what was read")
    print(
        f"{sum(looks.values())} looks beside it, of which {halves} saw a part of the batch;", end=""
    )
    print(f" the longest look took {said['longest']:.2f} s")
    wrong = wrong_rows(sink, rows)
    print(f"{wrong} rows are not there once, {said['left']} transactions left behind")
    return int(bool(halves or wrong or said["left"] or len(batches) != 1))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.epoch")
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--undecided-mib", type=int, default=1 << 14, help="the engine's limit")
    parser.add_argument("--directory", type=Path, help="where the files lie")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.serve:
        serve(asked.serve, asked.undecided_mib)
        return 0
    with tempfile.TemporaryDirectory(dir=asked.directory) as folder:
        spark = fmq.spark.session("epoch", **QUIET)
        spark.sparkContext.setLogLevel("OFF")
        try:
            return run(spark, folder, asked.rows, asked.undecided_mib)
        finally:
            spark.stop()


if __name__ == "__main__":
    sys.exit(main())
