"""What `import fmq` adds to the start of an interpreter.

Bare interpreters and importing ones in turn, and the difference of their medians; a peer's
row is the module that its user would import.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

from benchmarks.loop import Effort, Measured
from benchmarks.row import Goal, Row

MODULE = {"fmq": "fmq", "sqlite3": "sqlite3", "lmdb": "lmdb", "rocksdict": "rocksdict"}
SECONDS_A_START = 0.03


def measure(subject: str, effort: Effort) -> Measured:
    bare: list[float] = []
    importing: list[float] = []
    _start(f"import {MODULE[subject]}")  # once unmeasured, so that the bytecode is on disk
    for _ in range(max(3, int(effort.seconds / SECONDS_A_START / 2))):
        bare.append(_start("pass"))
        importing.append(_start(f"import {MODULE[subject]}"))
    return Measured((statistics.median(importing) - statistics.median(bare)) * 1000)


def _start(program: str) -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", program], check=True)
    return time.perf_counter() - started


ROWS = (
    Row(
        name="import",
        title="import, beyond a bare interpreter",
        unit="ms",
        work=measure,
        subjects=("fmq", "sqlite3", "lmdb", "rocksdict"),
        goals=(Goal("figure", 60),),
        more_is_better=False,
    ),
)
