"""What a joint decision costs: rows that are prepared in parts, decided at once, and visible.

    python -m benchmarks joint                     a million rows of 100 bytes in 24 parts
    python -m benchmarks joint --rows 100000 --parts 200

Beside it the same rows by `send_many`. Times are of this process: by the clock, and of its
processor; "memory" is
by how much it grew from before the decision to its highest point.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path

import fmq

EACH = 50_000


def timed(what: str, began: tuple[float, float], more: str = "") -> None:
    wall, processor = time.perf_counter() - began[0], time.process_time() - began[1]
    print(f"{what:34} {wall:7.2f} s {processor:7.2f} s of processor {more}")


def now() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--parts", type=int, default=24)
    parser.add_argument("--bytes", type=int, default=100)
    args = parser.parse_args()
    body = bytes(args.bytes)
    with tempfile.TemporaryDirectory() as folder, fmq.open(Path(folder, "joint")) as engine:
        began, left = now(), args.rows
        while left:
            engine.send_many("plain", [body] * min(left, EACH))
            left -= min(left, EACH)
        timed("send_many", began)
        began, names = now(), []
        for part in range(args.parts):
            rows = args.rows * (part + 1) // args.parts - args.rows * part // args.parts
            tx = engine.transaction(tx_id=f"part {part}")
            tx.send_many("rows", [body] * rows)
            tx.prepare()
            names.append(tx.tx_id)
        timed(f"prepare {args.parts} parts", began)
        before, began = peak_mib(), now()
        engine.decide_many(names, "commit", mark=("epoch", 1, -1))
        timed("decide_many", began, f"{peak_mib() - before:,.0f} MiB of memory")
        assert engine.queues("rows")[0].next == args.rows


if __name__ == "__main__":
    main()
