"""The stopwatch: an operation again and again, in one thread or several.

An operation returns how many units of work it did; zero says that nothing is left. It is
measured for some seconds after a short warm-up, or, where a count is given, exactly so often
without one: that is how the system calls are counted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from benchmarks import flushes

Operation = Callable[[], int]

WARM_UP_SHARE = 0.2
BEGIN, END = "benchmark-begins", "benchmark-ends"


@dataclass(frozen=True, slots=True)
class Effort:
    """How long, or how often, to measure an operation, and on which disk."""

    directory: Path
    seconds: float = 1.0
    count: int | None = None
    scale: float = 1.0
    """What part of the stored messages of a full run there are."""

    def scaled(self, count: int) -> int:
        return max(1, int(count * self.scale))


@dataclass(frozen=True, slots=True)
class Measured:
    """What one cell of the table found, in the unit of its row."""

    value: float
    operations: int = 0
    flushes: int | None = None


def rate(operations: Sequence[Operation], effort: Effort, *, warm_up: bool = True) -> Measured:
    """Units a second, all operations together, each in a thread of its own if there are several.

    Without `warm_up` the work may run out, and the rate is that of what there was.
    """
    if warm_up and effort.count is None:
        _run(operations, effort.seconds * WARM_UP_SHARE, None)
    flushed = flushes.counter(effort.directory)
    before = flushed() if flushed else 0
    _mark(effort, BEGIN)
    started = time.perf_counter()
    calls, units = _run(operations, effort.seconds, effort.count)
    elapsed = time.perf_counter() - started
    _mark(effort, END)
    assert effort.count is None or calls == effort.count, f"the work ran out after {calls} calls"
    return Measured(units / elapsed, calls, flushed() - before if flushed else None)


def _mark(effort: Effort, name: str) -> None:
    """Leave a mark among the system calls of a run that may be watched."""
    if effort.count is not None:
        (effort.directory / name).touch()


def _run(operations: Sequence[Operation], seconds: float, count: int | None) -> tuple[int, int]:
    if len(operations) == 1:
        return _repeat(operations[0], seconds, count)
    share = None if count is None else count // len(operations)
    with ThreadPoolExecutor(len(operations)) as threads:
        runs = [threads.submit(_repeat, each, seconds, share) for each in operations]
    done = [run.result() for run in runs]
    return sum(calls for calls, _ in done), sum(units for _, units in done)


def _repeat(operation: Operation, seconds: float, count: int | None) -> tuple[int, int]:
    calls = units = 0
    now = time.perf_counter
    end = now() + seconds
    while calls < count if count is not None else now() < end:
        did = operation()
        if not did:
            break
        calls += 1
        units += did
    return calls, units
