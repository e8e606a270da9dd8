#!/usr/bin/env python3
"""Kill the driver of a stream from a live engine into a table of Delta: 1 if rows differ.

    python tools/kill_spark_delta.py DIR --drivers 15 --seed 1

Spark's own sink of Delta writes, with the Spark and the jars of tools/spark_delta.py, which brings
them. An engine sends and commits all the while. The driver is killed with all its workers once it
has made a few commits, at once or soon after, and begun again with the same checkpoint. At the end
each message that is visible has to be in the table once, and no other.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from functools import partial
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import fmq
from tools import spark_delta

ROOT = Path(__file__).resolve().parent.parent
ROWS_OF_A_BATCH = 500
AHEAD = 3
"""So many batches wait at most."""
QUIET = {
    "spark__ui__enabled": "false",
    "spark__ui__showConsoleProgress": "false",
    "spark__driver__bindAddress": "127.0.0.1",
    "spark__driver__host": "127.0.0.1",
    "spark__sql__shuffle__partitions": "1",
    "spark__databricks__delta__snapshotPartitions": "2",
    # A driver lives for seconds, so its Java compiles little.
    "spark__driver__extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark__python__daemon__module": "tools.warm_daemon",
}


def drive(folder: Path) -> None:
    """Write what is new until the file `calm` is there, and then what is left."""
    import fmq.spark
    from tools.spark_streams import ended

    spark = fmq.spark.session("kills", "local[2]", **(QUIET | spark_delta.settings()))
    spark.sparkContext.setLogLevel("ERROR")
    print(f"Spark {spark.version}", file=sys.stderr, flush=True)
    while True:
        last = (folder / "calm").exists()
        rows = spark.readStream.format("fmq").option("maxRecordsPerTrigger", str(ROWS_OF_A_BATCH))
        chosen = rows.load(str(folder / "shop")).select("body", "position")
        writer = chosen.writeStream.trigger(availableNow=True).format("delta")
        writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
        ended(partial(writer.start, str(folder / "table")))
        if last:
            return


class Sender(threading.Thread):
    """Sends and commits, as long as few batches wait. One transaction in ten is rolled back."""

    def __init__(self, folder: Path, engine: fmq.Engine, random: Random) -> None:
        super().__init__()
        self._folder, self._engine, self._random = folder, engine, random
        self.sent = 0
        self.calm = threading.Event()

    def run(self) -> None:
        while not self.calm.wait(0.02):
            if self.sent < ROWS_OF_A_BATCH * (commits(self._folder) + AHEAD):
                self.send()

    def send(self) -> None:
        count = self._random.randint(1, 40)
        tx = self._engine.transaction()
        tx.send_many("in", [b"%d" % number for number in range(self.sent, self.sent + count)])
        if self._random.random() < 0.1:
            tx.prepare()
            tx.rollback()
        else:
            tx.commit()
            self.sent += count


def commits(folder: Path) -> int:
    return len(list((folder / "table" / "_delta_log").glob("*.json")))


def start(folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, __file__, str(folder), "--drive"],
        stdout=subprocess.DEVNULL,
        stderr=(folder / "errors").open("ab"),
        env=os.environ | {"PYTHONPATH": f"{spark_delta.PYTHON}:{ROOT}"},
        cwd=ROOT,
        start_new_session=True,
    )


def run(folder: Path, drivers: int, random: Random) -> int:
    begun, killed = time.monotonic(), 0
    with fmq.open(folder / "shop") as engine:
        sender = Sender(folder, engine, random)
        sender.send()
        sender.start()
        try:
            while killed < drivers:
                driver, goal = start(folder), commits(folder) + random.randint(1, 3)
                while driver.poll() is None and commits(folder) < goal:
                    time.sleep(0.002)
                time.sleep(random.choice((0, 0, random.uniform(0, 1))))
                if driver.poll() is not None:
                    raise SystemExit(f"a driver ended by itself: see {folder / 'errors'}")
                os.killpg(driver.pid, signal.SIGKILL)
                driver.wait()
                killed += 1
                print(
                    f"{time.monotonic() - begun:.0f} s: {killed} drivers killed, "
                    f"{commits(folder)} commits, {sender.sent} rows sent",
                    flush=True,
                )
        finally:
            sender.calm.set()
            sender.join()
        (folder / "calm").touch()
        if start(folder).wait():
            raise SystemExit(f"a driver ended with an error: see {folder / 'errors'}")
        return judge(folder, sender.sent)


def judge(folder: Path, sent: int) -> int:
    from deltalake import DeltaTable

    table = DeltaTable(folder / "table").to_pyarrow_table(columns=["body"])
    found = Counter(map(int, table["body"].to_pylist()))
    lost, doubled = sent - len(found), found.total() - len(found)
    print(f"{sent} rows in {commits(folder)} commits: {lost} lost, {doubled} doubled")
    return int(bool(lost or doubled))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", metavar="DIR", type=Path, nargs="?")
    parser.add_argument("--drivers", type=int, default=15)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--drive", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    folder = (args.folder or Path(tempfile.mkdtemp(prefix="kill-delta-"))).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    if args.drive:
        drive(folder)
        return 0
    if missing := spark_delta.fetch():
        raise SystemExit(missing)
    print(f"seed {args.seed}, in {folder}", flush=True)
    return run(folder, args.drivers, Random(args.seed))


if __name__ == "__main__":
    sys.exit(main())
