"""Making a failure small: fewer steps, as long as the same invariant breaks."""

from __future__ import annotations

import time
from dataclasses import replace

from crash_tests.explore import Depth, Explorer
from crash_tests.failure import Failure
from crash_tests.workload import Workload


def shrink(failure: Failure, depth: Depth, seconds: float = 20.0) -> Failure:
    """The smallest failure of the same invariant that is found in time."""
    deadline = time.monotonic() + seconds
    size = max(1, len(failure.workload.steps) // 2)
    while time.monotonic() < deadline:
        smaller = _without(failure, size, depth, deadline)
        if smaller is not None:
            failure = smaller
        elif size == 1:
            break
        size = max(1, min(size if smaller else size // 2, len(failure.workload.steps) // 2))
    return failure


def _without(failure: Failure, size: int, depth: Depth, deadline: float) -> Failure | None:
    steps = failure.workload.steps
    for at in range(len(steps) - size, -1, -size):
        fewer = steps[:at] + steps[at + size :]
        workload: Workload = replace(failure.workload, steps=fewer)
        for found in Explorer(workload, depth=depth).explore(until=deadline).failures:
            if found.violation.invariant == failure.violation.invariant:
                return found
    return None
