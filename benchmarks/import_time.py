"""What `import fmq` adds to the start of an interpreter.

Bare interpreters and importing ones in turn, and the difference of their medians; a peer's
row is the module that its user would import. Bytecode is kept in a directory of the benchmark's
own, as an installation keeps it, whatever the environment says about writing it.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time

from benchmarks.loop import Effort, Measured
from benchmarks.row import Goal, Row

MODULE = {"fmq": "fmq", "sqlite3": "sqlite3", "lmdb": "lmdb", "rocksdict": "rocksdict"}
SECONDS_A_START = 0.03


def measure(subject: str, effort: Effort) -> Measured:
    bare: list[float] = []
    importing: list[float] = []
    with tempfile.TemporaryDirectory(prefix="fmq-bytecode-") as bytecode:
        _start(f"import {MODULE[subject]}", bytecode)  # unmeasured: it compiles
        for _ in range(max(3, int(effort.seconds / SECONDS_A_START / 2))):
            bare.append(_start("pass", bytecode))
            importing.append(_start(f"import {MODULE[subject]}", bytecode))
    return Measured((statistics.median(importing) - statistics.median(bare)) * 1000)


def _start(program: str, bytecode: str) -> float:
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": bytecode}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)
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
