"""What waiting for the disk does to the code that runs next: `python -m benchmarks.cold`.

The same work is timed in a loop of its own, and directly after each of many synced writes. While
the disk syncs, the processor sleeps or serves others, and comes back with caches that know
nothing of us. That is a floor for every engine that answers after a sync, and it is the higher
the more code and data an answer touches: Python's interpreter pays more of it than C does.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROUNDS, WRITES = 5, 2000
FILE_BYTES = 8 << 20
RECORD = bytes(168)
VALUE = {"key": "c-7", "tag": "paid", "sizes": [1, 2, 3], "headers": {"trace": "9f" * 8}}

WORK: dict[str, Callable[[], object]] = {
    "a loop over 600 numbers": lambda: sum(range(600)),
    "a value to JSON and back": lambda: json.loads(json.dumps(VALUE)),
}


def hot_us(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    for _ in range(WRITES):
        work()
    return (time.perf_counter() - started) / WRITES * 1e6


def cold_us(work: Callable[[], object], fd: int) -> float:
    spent = []
    for number in range(WRITES):
        os.pwritev(fd, [RECORD], number * len(RECORD) % (FILE_BYTES - 4096), os.RWF_DSYNC)
        started = time.perf_counter()
        work()
        spent.append(time.perf_counter() - started)
    return statistics.median(spent) * 1e6


def main() -> None:
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        fd = os.open(Path(folder, "zeros"), os.O_RDWR | os.O_CREAT, 0o600)
        os.pwrite(fd, bytes(FILE_BYTES), 0)
        os.fsync(fd)
        for name, work in WORK.items():
            pairs = [(hot_us(work), cold_us(work, fd)) for _ in range(ROUNDS)]
            hot, cold = (statistics.median(each) for each in zip(*pairs, strict=True))
            print(f"{name}: {hot:.1f} us hot, {cold:.1f} us after a sync, {cold / hot:.1f} x")
        os.close(fd)


if __name__ == "__main__":
    main()
