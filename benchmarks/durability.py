"""Does everybody pay for what they claim? Syncs for each operation, counted at the system calls.

    python -m benchmarks durability

Each subject runs under strace, a fixed number of operations between two marks among the system
calls. Servers are started by the process that is watched, so they are watched with it. Counted are
fsync, fdatasync, sync_file_range, msync, writes with RWF_DSYNC or RWF_SYNC, and writes to files
that were opened with O_DSYNC or O_SYNC.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from dataclasses import replace

from benchmarks import show
from benchmarks.loop import BEGIN, END, Effort
from benchmarks.row import Row
from benchmarks.runner import CellFailed, Say, cell

OPERATIONS = 200

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
                why = f"FAILED: {str(error).splitlines()[-1]}"
                lines.append((row.name, subject, "-", str(row.syncs_min), why))
                short += 1
                continue
            enough = syncs >= row.syncs_min
            short += not enough
            verdict = "durable" if enough else "NOT DURABLE"
            lines.append((row.name, subject, f"{syncs:.2f}", str(row.syncs_min), verdict))
    show.table("syncs for each operation", ("row", "subject", "syncs", "needed", ""), lines)
    return short


def syncs_per_operation(row: Row, subject: str, effort: Effort) -> float:
    """Return the average number of syncs for each operation."""
    trace = effort.directory.parent / "trace"
    watch = ("strace", "-f", "-qq", "-e", f"trace={TRACED}", "-o", str(trace))
    try:
        cell(row, subject, replace(effort, count=OPERATIONS), watch)
        with trace.open(errors="replace") as lines:
            return count(lines) / OPERATIONS
    finally:
        trace.unlink(missing_ok=True)


def count(trace: Iterable[str]) -> int:
    """Return how many calls between the marks in strace's output make something durable."""
    synced: set[str] = set()  # descriptors whose every write is synced
    total = 0
    for line in trace:
        call = CALL.match(line.rstrip())
        if call is None:
            continue
        name, first, rest = call.groups()
        if name in OPENS:
            if BEGIN in rest:
                total = 0
            if END in rest:
                return total
            if opened := OPENED.search(rest):
                synced.add(opened[1])
        elif name in SYNCS or first in synced or "RWF_DSYNC" in rest or "RWF_SYNC" in rest:
            total += 1
    raise CellFailed("the trace has no end mark")
