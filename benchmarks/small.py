"""What a small store takes on the disk, and whether its sends are slower than those of a large one.

Run `python -m benchmarks.small`. The two subjects take turns: directories whose first segment has
its usual size, and those that begin with segments of full size, as fmq did before they grew.

The rate also counts what other programs do to the disk meanwhile. So the time of the typical send
is compared, too: half of all sends took less.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import NamedTuple

import fmq

BODY = b"m" * 100
FEW = 10
GROWING = fmq.Options()
FULL = fmq.Options(first_segment_bytes=GROWING.segment_bytes)


class Small(NamedTuple):
    """What was measured of one directory."""

    empty_bytes: int
    few_bytes: int  # with a few messages
    sends_per_second: float
    send_us: float  # half of all sends took less


def size_of(path: Path) -> int:
    return sum(each.stat().st_size for each in path.rglob("*") if each.is_file())


def measured(folder: str, options: fmq.Options, sends: int) -> Small:
    path = Path(tempfile.mkdtemp(dir=folder)) / "data"
    fmq.open(path, options).close()
    empty = size_of(path)
    with fmq.open(path, options) as engine:
        for _ in range(FEW):
            engine.send("orders", BODY)
        few = size_of(path)
        took = []
        for _ in range(sends):
            began = time.perf_counter()
            engine.send("orders", BODY)
            took.append(time.perf_counter() - began)
        return Small(empty, few, sends / sum(took), median(took) * 1e6)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sends", type=int, default=5_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--directory", default=".", help="where the stores lie")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.directory) as folder:
        growing, full = [], []
        for _ in range(args.rounds):
            growing.append(measured(folder, GROWING, args.sends))
            full.append(measured(folder, FULL, args.sends))
    for name, found in (("growing", growing), ("full size", full)):
        rate = median(each.sends_per_second for each in found)
        typical = median(each.send_us for each in found)
        empty, few = found[0].empty_bytes / 2**20, found[0].few_bytes / 2**20
        print(
            f"{name:10} empty {empty:5.2f} MiB, {FEW} messages {few:5.2f} MiB, {rate:,.0f} sends/s,"
            f" a typical one {typical:.0f} us"
        )
    pairs = [*zip(growing, full, strict=True)]
    rates = median(one.sends_per_second / other.sends_per_second for one, other in pairs)
    times = median(one.send_us / other.send_us for one, other in pairs)
    print(f"growing beside full size: {rates:.2f} x the rate, {times:.2f} x the time of a send")


if __name__ == "__main__":
    main()
