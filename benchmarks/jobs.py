"""What rows cost that are written as one transaction: `python -m benchmarks.jobs`.

Processor time of all threads and of the engine's process, beside `send_many` of the same bodies in
an engine of this process, which is many appends and no transaction. The ways take turns: the
medians of the rounds, and of the ratios of each round.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import process_time

import pyarrow as pa

import fmq
import fmq.table
from fmq.intake import WriteJob

APPEND = 50_000
SERVE = "import sys, fmq\nwith fmq.open(sys.argv[1]) as engine, engine.serve():\n"
SERVE += "    print('ready', flush=True)\n    sys.stdin.read()\n"


def rows_of(messages: int) -> pa.Table:
    return pa.table({"body": [b"%0100d" % number for number in range(messages)]})


def send_many(folder: Path, rows: pa.Table) -> float:
    with fmq.open(folder / "shop") as engine:
        began = process_time()
        for batch in rows.to_batches(APPEND):
            engine.send_many("t", batch.column("body").to_pylist())
        return process_time() - began


def write(folder: Path, rows: pa.Table) -> float:
    with fmq.open(folder / "shop") as engine:
        began = process_time()
        fmq.table.write(engine, "t", rows, mark=("load", 1))
        return process_time() - began


def cluster(folder: Path, rows: pa.Table) -> float:
    """Four tasks and a committer, one after the other, are clients of another process."""
    path = str(folder / "shop")
    engine = subprocess.Popen(
        [sys.executable, "-c", SERVE, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert engine.stdout is not None
    engine.stdout.readline()
    stat = Path(f"/proc/{engine.pid}/stat")

    def spent() -> float:
        user, system = stat.read_text().rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    before, began = spent(), process_time()
    share, parts = -(-rows.num_rows // 4), []
    with fmq.connect(path, start=False) as client:
        for task in range(4):
            mine = rows.slice(task * share, share).to_batches()
            job = WriteJob(client, "load", 1, "run", str(task))
            parts.append(job.write(mine, "t", hold_bytes=0))
        WriteJob(client, "load", 1, "run", "driver").commit(parts)
    took = process_time() - began + spent() - before
    engine.communicate()
    return took


WAYS: dict[str, Callable[[Path, pa.Table], float]] = {
    "send_many": send_many,
    "fmq.table.write": write,
    "tasks of a cluster": cluster,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    rows, took = rows_of(args.messages), dict[str, list[float]]()
    for _ in range(args.rounds):
        for name, way in WAYS.items():
            with tempfile.TemporaryDirectory() as folder:
                took.setdefault(name, []).append(way(Path(folder), rows))
    least = took["send_many"]
    print(f"{args.messages:,} messages of 100 bytes, {args.rounds} rounds: processor seconds, x")
    for name, times in took.items():
        ratios = [mine / its for mine, its in zip(times, least, strict=True)]
        print(f"  {name:20} {statistics.median(times):6.2f} {statistics.median(ratios):6.2f}")
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MiB")


if __name__ == "__main__":
    main()
