#!/usr/bin/env python3
"""Kill a stream of Spark that writes into a journal, in all its parts: 1 if rows differ at the end.

    python tools/kill_spark_writes.py DIR --drivers 5 --seed 1

A query reads one journal and writes another one. Its driver is killed at a random moment, and begun
again with the same checkpoint. Its tasks and committers kill themselves now and then, before and
behind what they do, and the engine that serves the journal is killed, too. At the end each row has
to be there once, and nothing may be undecided. A driver takes half a minute.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random, SystemRandom
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import pyarrow as pa
from pyspark.sql.types import StructType

import fmq
from fmq.spark.source import DataSource
from fmq.spark.write_options import parse_write
from fmq.spark.writers import StreamWriter
from tests.spark.conftest import QUIET

ROOT = Path(__file__).resolve().parent.parent
ROWS, ROWS_OF_A_BATCH = 24_000, 2000
SHARE_OF_TASKS, SHARE_OF_COMMITTERS = 0.04, 0.08


def die(deaths: str, point: str, share: float) -> None:
    """End this process, in a `share` of the calls. A line in the file `deaths` says so."""
    if SystemRandom().random() < share:
        with Path(deaths).open("a") as file:
            file.write(f"{point}\n")
        os.kill(os.getpid(), signal.SIGKILL)


class DyingWriter(StreamWriter):
    """A writer whose processes die."""

    deaths = ""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Any:
        def rows() -> Iterator[pa.RecordBatch]:
            for batch in iterator:
                for start in range(0, batch.num_rows, 200):
                    yield batch.slice(start, 200)
                    die(self.deaths, "task", SHARE_OF_TASKS / 4)

        done = super().write(rows())
        die(self.deaths, "task, prepared", SHARE_OF_TASKS)
        return done

    def commit(self, messages: Any, batchId: int) -> None:  # noqa: N803
        die(self.deaths, "committer", SHARE_OF_COMMITTERS)
        super().commit(messages, batchId)
        die(self.deaths, "committer, decided", SHARE_OF_COMMITTERS)


class DyingSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "dying"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DyingWriter:  # noqa: N802
        options = dict(self.options)
        deaths = options.pop("deaths")
        writer = DyingWriter(parse_write(options, streaming=True), schema, overwrite)
        writer.deaths = deaths
        return writer


def drive(folder: Path) -> None:
    """Write what is left, as the driver of Spark."""
    import fmq.spark

    spark = fmq.spark.session("kills", "local[2,4]", **QUIET)
    spark.sparkContext.setLogLevel("OFF")
    spark.dataSource.register(DyingSource)
    print("ready", flush=True)
    rows = spark.readStream.format("fmq").option("maxRecordsPerTrigger", str(ROWS_OF_A_BATCH))
    chosen = rows.load(str(folder / "source")).select("body").repartition(2)
    writer = chosen.writeStream.format("dying").option("topic", "out").trigger(availableNow=True)
    writer = writer.options(partBytes="8000", deaths=str(folder / "deaths"))
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    writer.start(str(folder / "sink")).awaitTermination()


def serve(folder: Path) -> None:
    with fmq.open(folder / "sink") as engine, engine.serve():
        print("ready", flush=True)
        sys.stdin.read()


def started(part: str, folder: Path) -> subprocess.Popen[bytes]:
    """Start this program as `part`, and return once it is ready."""
    process = subprocess.Popen(
        [sys.executable, __file__, str(folder), "--part", part],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=(folder / "errors").open("ab"),
        cwd=ROOT,
        start_new_session=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a process with all that it has started, as Java and its workers."""
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def run(folder: Path, drivers: int, random: Random) -> int:
    with fmq.open(folder / "source") as source:
        for start in range(0, ROWS, 100):
            source.send_many("in", [b"%d" % row for row in range(start, start + 100)])
    killed, begun = Counter[str](), time.monotonic()
    engine = started("engine", folder)
    while True:
        driver = started("driver", folder)
        end = random.uniform(3, 60) if killed["driver"] < drivers else 600.0
        if random.random() < 0.5:
            time.sleep(random.uniform(0, 8))
            kill(engine)
            killed["engine"] += 1
            engine = started("engine", folder)
        try:
            code = driver.wait(end)
        except subprocess.TimeoutExpired:
            kill(driver)
            killed["driver"] += 1
            continue
        killed["driver, after an error of its own"] += code != 0
        if code == 0 and killed["driver"] >= drivers:
            break
    engine.communicate()
    deaths = folder / "deaths"
    killed.update(deaths.read_text().splitlines() if deaths.exists() else [])
    with fmq.open(folder / "sink") as sink:
        found = Counter(int(each.body) for each in sink.read("out", limit=10 * ROWS))
        left = len(sink.undecided())
    lost, doubled = ROWS - len(found), found.total() - len(found)
    print(f"killed in {time.monotonic() - begun:.0f} s: {dict(killed)}")
    print(f"{ROWS} rows: {lost} lost, {doubled} doubled; {left} transactions left behind")
    return int(bool(lost or doubled or left))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", metavar="DIR", type=Path, nargs="?")
    parser.add_argument("--drivers", type=int, default=5)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--part", choices=["driver", "engine"], help=argparse.SUPPRESS)
    args = parser.parse_args()
    folder = (args.folder or Path(tempfile.mkdtemp(prefix="kill-spark-"))).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    if args.part:
        {"driver": drive, "engine": serve}[args.part](folder)
        return 0
    print(f"seed {args.seed}, in {folder}", flush=True)
    return run(folder, args.drivers, Random(args.seed))


if __name__ == "__main__":
    sys.exit(main())
