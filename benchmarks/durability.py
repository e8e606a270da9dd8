"""Does everybody pay for what they claim? Syncs for each operation, counted at the system calls.

    python -m benchmarks durability

Each subject runs under strace twice, with few operations and with more. What the longer run
syncs beyond the shorter one, divided by the operations it does beyond it, is what an operation
costs; whatever opening and closing sync cancels out. Servers are started by the process that is
watched, so they are watched with it. Counted are fsync, fdatasync, sync_file_range, msync, writes
with RWF_DSYNC or RWF_SYNC, and writes to files that were opened with O_DSYNC or O_SYNC.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from benchmarks import show
from benchmarks.loop import Effort
from benchmarks.row import Row
from benchmarks.runner import CellFailed, Say, cell

FEW, MORE = 50, 250
TOLERANCE = 0.98  # a background thread may have synced early what the first run would have to

SYNCS = ("fsync", "fdatasync", "sync_file_range", "msync")
WRITES = ("write", "pwrite64", "writev", "pwritev", "pwritev2")
OPENS = ("open", "openat")
TRACED = ",".join((*SYNCS, *WRITES, *OPENS))
CALL = re.compile(r"^(?:\d+ +)?(\w+)\((-?\w+)(.*)$")
OPENED = re.compile(r"O_D?SYNC.*= (\d+)$")


def check(
    chosen: Iterable[Row], subjects_of: dict[str, list[str]], effort: Effort, say: Say
) -> int:
    """Print syncs for each operation of every subject; how many sync less than they must."""
    if shutil.which("strace") is None:
        say("durability: strace is not installed, so NOTHING WAS VERIFIED")
        return 1
    lines = []
    short = 0
    for row in chosen:
        for subject in subjects_of[row.name]:
            say(f"durability  {row.name}  {subject}")
            try:
                syncs = syncs_per_operation(row, subject, effort)
            except CellFailed as error:
                lines.append((row.name, subject, "-", str(row.syncs_min), f"FAILED: {error}"))
                short += 1
                continue
            enough = syncs >= row.syncs_min * TOLERANCE
            short += not enough
            verdict = "durable" if enough else "NOT DURABLE"
            lines.append((row.name, subject, f"{syncs:.2f}", str(row.syncs_min), verdict))
    show.table("syncs for each operation", ("row", "subject", "syncs", "needed", ""), lines)
    return short


def syncs_per_operation(row: Row, subject: str, effort: Effort) -> float:
    """What one more operation costs in syncs."""
    few, more = (_syncs(row, subject, replace(effort, count=count)) for count in (FEW, MORE))
    return (more - few) / (MORE - FEW)


def _syncs(row: Row, subject: str, effort: Effort) -> int:
    trace = effort.directory.parent / "trace"
    try:
        cell(
            row, subject, effort, ("strace", "-f", "-qq", "-e", f"trace={TRACED}", "-o", str(trace))
        )
        return count(trace)
    finally:
        trace.unlink(missing_ok=True)


def count(trace: Path) -> int:
    """How many of the calls in strace's output make something durable."""
    synced: set[str] = set()  # descriptors whose every write is synced
    total = 0
    with trace.open(errors="replace") as lines:
        for line in lines:
            call = CALL.match(line.rstrip())
            if call is None:
                continue
            name, first, rest = call.groups()
            if name in OPENS:
                opened = OPENED.search(rest)
                if opened:
                    synced.add(opened[1])
            elif name in SYNCS or first in synced or "RWF_DSYNC" in rest or "RWF_SYNC" in rest:
                total += 1
    return total
