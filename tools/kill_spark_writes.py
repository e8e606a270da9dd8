#!/usr/bin/env python3
"""Kill a stream of Spark that writes into a journal, in all its parts: 1 if rows differ at the end.

    python tools/kill_spark_writes.py DIR --seed 1
    python tools/kill_spark_writes.py DIR --cluster --drivers 2 --tasks 20 --committers 10

A query reads one journal and writes another one, each batch as one transaction. Its driver is
killed at a random moment, and begun again with the same checkpoint. Its tasks and committers kill
themselves, before and behind what they do. The engine that serves the journal is killed all the
while. In between it looks at what is visible, which must be whole batches. More rows come until all
that is asked for has died; then the query comes to its end. Each row has to be there once, and
nothing may be undecided.

The rows go through TCP with a token. With `--cluster` there is a cluster of two workers, at two
addresses: Spark starts no twin of a task at the address of the first one. Some tasks wait in the
middle of their rows until a twin, which Spark's speculation starts, has prepared all: then they go
on, and come too late.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import pyspark

import fmq
import fmq.spark
from tools.ports import free_port

ROOT = Path(__file__).resolve().parent.parent
DRIVER = ROOT / "tools" / "dying_writes.py"
ROWS_OF_A_BATCH = 1000
SECONDS_OF_SUMS = 60
"""So often it prints what has died so far: a run that is stopped has said its sums."""
AHEAD = 6
"""So many batches wait at least, as long as something is to be killed."""
LOOKS = 100


def serve(folder: Path) -> None:
    tcp = (folder / "address").read_text().removeprefix("tcp://")
    with (
        fmq.open(folder / "sink") as engine,
        engine.serve(tcp=tcp, token_file=str(folder / "token")),
    ):
        print("ready", flush=True)
        with (folder / "looks").open("a") as file:
            while True:
                halves = sum(seen(engine) % ROWS_OF_A_BATCH != 0 for _ in range(LOOKS))
                file.write(f"{halves} {seen(engine)}\n")
                file.flush()


def seen(engine: fmq.Engine) -> int:
    time.sleep(0.001)
    return sum(queue.next for queue in engine.queues("out"))


class Part:
    """A process with all that it starts, as Java and its workers."""

    def __init__(self, folder: Path, *command: str) -> None:
        with (folder / "errors").open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=ROOT,
                start_new_session=True,
            )
        assert self.process.stdout is not None
        if self.process.stdout.readline() != b"ready\n" and self.process.poll() is not None:
            raise SystemExit(f"{command[0]} does not start: see {folder / 'errors'}")

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()


class Cluster:
    """A master of Spark and two workers, whose executors outlive a driver for a moment."""

    def __init__(self, folder: Path) -> None:
        fmq.spark.require_java()
        self._errors = (folder / "errors").open("ab")
        url = f"spark://127.0.0.1:{free_port()}"
        (folder / "master").write_text(url)
        port = url.rpartition(":")[2]
        self._parts = [self._part("master.Master", "127.0.0.1", "--port", port)]
        room = "--cores", "2", "--memory", "3g", "--work-dir", str(folder / "work")
        for host in ("127.0.0.2", "127.0.0.3"):
            self._parts.append(self._part("worker.Worker", host, *room, url))

    def _part(self, name: str, host: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = [str(Path(pyspark.__file__).parent / "bin" / "spark-class")]
        command += [f"org.apache.spark.deploy.{name}", "--host", host, "--webui-port", "0"]
        return subprocess.Popen(
            [*command, *arguments],
            stdout=self._errors,
            stderr=self._errors,
            env=os.environ | {"SPARK_LOCAL_IP": host},
            start_new_session=True,
        )

    def end(self) -> None:
        for part in self._parts:
            os.killpg(part.pid, signal.SIGKILL)
            part.wait()


def prepare(folder: Path, wanted: dict[str, int], share: float = 0.35) -> None:
    """Write down what the processes of a run have in common: how many are to die, and in how many
    of the cases in which they may.
    """
    (folder / "wanted").write_text(json.dumps([wanted, share]))
    (folder / "token").write_text(secrets.token_hex(32))
    (folder / "token").chmod(0o600)
    (folder / "address").write_text(f"tcp://127.0.0.1:{free_port()}")
    fmq.open(folder / "sink", fmq.Options(topic_queues={"out": 4})).close()


def serving(folder: Path) -> Part:
    """Start the process that serves what is written, and looks at it."""
    return Part(folder, __file__, str(folder), "--serve")


def lines_of(folder: Path, name: str) -> list[str]:
    file = folder / name
    return file.read_text().splitlines() if file.exists() else []


def looks_of(folder: Path) -> list[tuple[int, int]]:
    """Return for each round of looks how many saw a part of a batch, and how many rows."""
    lines = [line.split() for line in lines_of(folder, "looks")]
    return [(int(line[0]), int(line[1])) for line in lines if len(line) == 2]


def judge(folder: Path, rows: int) -> int:
    """Return 1 if one of `rows` is not there once, or anything else is wrong."""
    found = Counter[int]()
    with fmq.open(folder / "sink") as sink:
        for queue in sink.queues("out"):
            bodies = sink.read("out", queue=queue.queue, limit=10 * rows)
            found.update(int(each.body) for each in bodies)
        left = len(sink.undecided())
    lost, doubled = rows - len(found), found.total() - len(found)
    halves = sum(halves for halves, _ in looks_of(folder))
    print(f"{rows} rows: {lost} lost, {doubled} doubled; {left} transactions left behind")
    return int(bool(lost or doubled or left or halves))


class Run:
    def __init__(self, folder: Path, wanted: dict[str, int], random: Random) -> None:
        self._folder, self._wanted, self._random = folder, wanted, random
        self._killed = Counter[str]()
        self._rows = 0
        self._begun = time.monotonic()

    def go(self, minutes: float) -> int:
        folder, begun, said = self._folder, self._begun, self._begun
        with fmq.open(folder / "source") as source:
            self._feed(source)
            engine, driver = serving(folder), None
            next_engine, end = self._in(1, 6), 0.0
            while True:
                now = time.monotonic()
                if driver is None:
                    driver, end = self._driver(), self._in(3, 25)
                elif (code := driver.process.poll()) is not None:
                    if code == 0:
                        break
                    self._killed["(drivers that ended with an error)"] += 1
                    driver = None
                elif now > end and self._left("driver"):
                    driver.kill()
                    self._killed["driver"], driver = self._killed["driver"] + 1, None
                elif now > next_engine and self._left("engine"):
                    engine.kill()
                    self._killed["engine"] += 1
                    engine, next_engine = serving(folder), self._in(1, 8)
                elif now - begun > 60 * minutes or not any(map(self._left, self._wanted)):
                    (folder / "calm").touch()
                self._feed(source)
                if now > said + SECONDS_OF_SUMS:
                    said = now
                    self._say()
                time.sleep(0.05)
            engine.kill()
        self._say()
        return judge(folder, self._rows)

    def _say(self) -> None:
        """Print what has died, and what was seen."""
        looks = looks_of(self._folder)
        died = dict(sorted(self._deaths().items()))
        print(
            f"{time.monotonic() - self._begun:.0f} s: killed {died}; "
            f"{max((rows for _, rows in looks), default=0)} rows visible; of {LOOKS * len(looks)} "
            f"looks {sum(halves for halves, _ in looks)} saw a part of a batch",
            flush=True,
        )

    def _driver(self) -> Part:
        return Part(self._folder, str(DRIVER), str(self._folder))

    def _in(self, low: float, high: float) -> float:
        return time.monotonic() + self._random.uniform(low, high)

    def _left(self, what: str) -> bool:
        """Return whether more of `what` has to die."""
        return self._deaths()[what] < self._wanted[what]

    def _deaths(self) -> Counter[str]:
        return self._killed + Counter(lines_of(self._folder, "deaths"))

    def _feed(self, source: fmq.Engine) -> None:
        """Send batches, so that some wait. Each is one append, and so a batch of Spark."""
        if (self._folder / "calm").exists():
            return
        there = max((rows for _, rows in looks_of(self._folder)), default=0)
        while self._rows < there + AHEAD * ROWS_OF_A_BATCH:
            rows = range(self._rows, self._rows + ROWS_OF_A_BATCH)
            source.send_many("in", [b"%d" % row for row in rows])
            self._rows += ROWS_OF_A_BATCH


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", metavar="DIR", type=Path, nargs="?")
    parser.add_argument("--drivers", type=int, default=20)
    parser.add_argument("--tasks", type=int, default=100)
    parser.add_argument("--committers", type=int, default=60)
    parser.add_argument("--engines", type=int, default=50)
    parser.add_argument("--minutes", type=float, default=1e9, help="then nothing is killed")
    parser.add_argument("--cluster", action="store_true", help="two workers, speculation")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    folder = (args.folder or Path(tempfile.mkdtemp(prefix="kill-spark-"))).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    if args.serve:
        serve(folder)
        return 0
    print(f"seed {args.seed}, in {folder}", flush=True)
    wanted = {
        "driver": args.drivers,
        "engine": args.engines,
        "task": args.tasks // 2,
        "task, prepared": args.tasks - args.tasks // 2,
        "committer": args.committers // 2,
        "committer, decided": args.committers - args.committers // 2,
        "slow task": args.tasks // 2 if args.cluster else 0,
    }
    prepare(folder, wanted)
    cluster = Cluster(folder) if args.cluster else None
    try:
        return Run(folder, wanted, Random(args.seed)).go(args.minutes)
    finally:
        if cluster is not None:
            cluster.end()


if __name__ == "__main__":
    sys.exit(main())
