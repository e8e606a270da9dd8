#!/usr/bin/env python3
"""Kill a stream of Spark that writes into a journal, in all its parts: 1 if rows differ at the end.

    python tools/kill_spark_writes.py DIR --drivers 5 --seed 1
    python tools/kill_spark_writes.py DIR --cluster --batches 100

A query reads one journal and writes another one. Its driver is killed at a random moment, and begun
again with the same checkpoint. Its tasks and committers kill themselves now and then, before and
behind what they do; a driver begins a query again that has failed. The engine that serves the
journal is killed all the while, and looks at what is visible: it must be whole batches. At the end
each row has to be there once, and nothing may be undecided.

The rows go through TCP with a token. With `--cluster` there are two executors, some tasks are slow,
and Spark starts twins of them.
"""

from __future__ import annotations

import argparse
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random, SystemRandom
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import pyarrow as pa
from pyspark.errors import StreamingQueryException
from pyspark.sql.types import StructType

import fmq
from fmq.spark.source import DataSource
from fmq.spark.write_options import parse_write
from fmq.spark.writers import StreamWriter
from tests.spark.conftest import QUIET

ROOT = Path(__file__).resolve().parent.parent
ROWS_OF_A_BATCH = 1000
CALM = "calm"  # once this file is there, nothing is killed any more
SHARE_OF_TASKS, SHARE_OF_COMMITTERS = 0.15, 0.2
SHARE_OF_SLOW_TASKS, SLOW_SECONDS = 0.1, 4
SPECULATION = {
    "spark__speculation": "true",
    "spark__speculation__interval": "100ms",
    "spark__speculation__quantile": "0.5",
    "spark__speculation__minTaskRuntime": "500ms",
    "spark__driver__memory": "1g",
    "spark__executor__memory": "1024m",
}


def note(deaths: str, what: str) -> None:
    with Path(deaths).open("a") as file:
        file.write(f"{what}\n")


def die(deaths: str, point: str, share: float) -> None:
    """End this process, in a `share` of the calls. A line in the file `deaths` says so."""
    if SystemRandom().random() < share and not Path(deaths).with_name(CALM).exists():
        note(deaths, point)
        os.kill(os.getpid(), signal.SIGKILL)


class DyingWriter(StreamWriter):
    """A writer whose processes die."""

    deaths, slow = "", False

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Any:
        is_slow = self.slow and SystemRandom().random() < SHARE_OF_SLOW_TASKS

        def rows() -> Iterator[pa.RecordBatch]:
            for batch in iterator:
                for start in range(0, batch.num_rows, 200):
                    yield batch.slice(start, 200)
                    die(self.deaths, "task", SHARE_OF_TASKS / 4)

        done = super().write(rows())
        if is_slow:
            note(self.deaths, "(slow tasks)")
            time.sleep(SLOW_SECONDS)
            note(self.deaths, "(slow tasks that came late)")
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
        deaths, slow = options.pop("deaths"), options.pop("slow", None) is not None
        writer = DyingWriter(parse_write(options, streaming=True), schema, overwrite)
        writer.deaths, writer.slow = deaths, slow
        return writer


def drive(folder: Path) -> None:
    """Write what is left, as the driver of Spark."""
    import fmq.spark

    cluster = (folder / "cluster").exists()
    master = "local-cluster[2,1,1024]" if cluster else "local[2,4]"
    spark = fmq.spark.session("kills", master, **QUIET, **(SPECULATION if cluster else {}))
    spark.sparkContext.setLogLevel("OFF")
    spark.dataSource.register(DyingSource)
    print("ready", flush=True)
    rows = spark.readStream.format("fmq").option("maxRecordsPerTrigger", str(ROWS_OF_A_BATCH))
    chosen = rows.load(str(folder / "source")).select("body").repartition(2)
    writer = chosen.writeStream.format("dying").option("topic", "out").trigger(availableNow=True)
    writer = writer.options(partBytes="8000", deaths=str(folder / "deaths"))
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    writer = writer.option("tokenFile", str(folder / "token"))
    writer = writer.option("address", (folder / "address").read_text())
    if cluster:
        writer = writer.option("slow", "yes")
    while True:
        query = writer.start()
        with suppress(StreamingQueryException):
            query.awaitTermination()
            return


def serve(folder: Path) -> None:
    tcp = (folder / "address").read_text().removeprefix("tcp://")
    with (
        fmq.open(folder / "sink") as engine,
        engine.serve(tcp=tcp, token_file=str(folder / "token")),
    ):
        print("ready", flush=True)
        with (folder / "looks").open("a") as file:
            while True:
                halves = sum(_is_half(engine) for _ in range(100))
                file.write(f"{halves}\n")
                file.flush()


def _is_half(engine: fmq.Engine) -> bool:
    time.sleep(0.001)
    return sum(queue.next for queue in engine.queues("out")) % ROWS_OF_A_BATCH != 0


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
    if process.stdout.readline() != b"ready\n" and part == "engine":
        raise SystemExit(f"the engine does not start: see {folder / 'errors'}")
    return process


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a process with all that it has started, as Java and its workers."""
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def run(folder: Path, drivers: int, batches: int, minutes: float, random: Random) -> int:
    rows = batches * ROWS_OF_A_BATCH
    fmq.open(folder / "sink", fmq.Options(topic_queues={"out": 4})).close()
    with fmq.open(folder / "source") as source:
        for start in range(0, rows, 100):
            source.send_many("in", [b"%d" % row for row in range(start, start + 100)])
    killed, begun = Counter[str](), time.monotonic()
    engine = started("engine", folder)
    code: int | None = 1
    while code:
        driver = started("driver", folder)
        end = random.uniform(20, 90) if killed["driver"] < drivers else 1e9
        ready = time.monotonic()
        while (code := driver.poll()) is None:
            time.sleep(random.uniform(1, 12))
            if time.monotonic() - begun > 60 * minutes:
                (folder / CALM).touch()
                continue
            if time.monotonic() - ready > end:
                kill(driver)
                killed["driver"] += 1
                code = 1
                break
            kill(engine)
            killed["engine"] += 1
            engine = started("engine", folder)
        else:
            killed["(drivers that ended with an error)"] += code != 0
    kill(engine)
    looks = [int(line) for line in (folder / "looks").read_text().split()]
    deaths = folder / "deaths"
    killed.update(deaths.read_text().splitlines() if deaths.exists() else [])
    with fmq.open(folder / "sink") as sink:
        bodies = (
            each.body
            for queue in sink.queues("out")
            for each in sink.read("out", queue=queue.queue, limit=10 * rows)
        )
        found = Counter(map(int, bodies))
        left = len(sink.undecided())
    lost, doubled = rows - len(found), found.total() - len(found)
    print(f"killed in {time.monotonic() - begun:.0f} s: {dict(killed)}")
    print(f"{rows} rows: {lost} lost, {doubled} doubled; {left} transactions left behind")
    print(f"{100 * len(looks)} looks beside it, of which {sum(looks)} saw a part of a batch")
    return int(bool(lost or doubled or left or sum(looks)))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", metavar="DIR", type=Path, nargs="?")
    parser.add_argument("--drivers", type=int, default=5)
    parser.add_argument("--batches", type=int, default=24)
    parser.add_argument("--minutes", type=float, default=1e9, help="then nothing is killed")
    parser.add_argument("--cluster", action="store_true", help="two executors, speculation")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--part", choices=["driver", "engine"], help=argparse.SUPPRESS)
    args = parser.parse_args()
    folder = (args.folder or Path(tempfile.mkdtemp(prefix="kill-spark-"))).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    if args.part:
        {"driver": drive, "engine": serve}[args.part](folder)
        return 0
    print(f"seed {args.seed}, in {folder}", flush=True)
    if args.cluster:
        (folder / "cluster").touch()
    (folder / "token").write_text(secrets.token_hex(32))
    (folder / "token").chmod(0o600)
    with socket.create_server(("127.0.0.1", 0)) as free:
        (folder / "address").write_text(f"tcp://127.0.0.1:{free.getsockname()[1]}")
    return run(folder, args.drivers, args.batches, args.minutes, Random(args.seed))


if __name__ == "__main__":
    sys.exit(main())
