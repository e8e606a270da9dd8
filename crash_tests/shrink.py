"""Makes a failure smaller: fewer steps and smaller bodies, as long as the same invariant breaks."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import TypeVar

from crash_tests.explore import Depth, Explorer
from crash_tests.failure import Failure
from crash_tests.faults import FaultTour
from crash_tests.oracle import Violation
from crash_tests.workload import Step, Workload

T = TypeVar("T")
SMALL_BYTES = 20


def shrink(failure: Failure, depth: Depth, seconds: float = 20.0) -> Failure:
    """Return the smallest failure of the same invariant that is found in time."""
    deadline = time.monotonic() + seconds
    smaller: Failure | None = failure
    while smaller is not None and time.monotonic() < deadline:
        failure = smaller
        smaller = _smaller(failure, depth, deadline)
    return failure


def _smaller(failure: Failure, depth: Depth, deadline: float) -> Failure | None:
    for steps in fewer_or_smaller(failure.workload.steps):
        if time.monotonic() >= deadline:
            break
        found = _find(failure, replace(failure.workload, steps=steps), depth, deadline)
        if found is not None:
            return found
    return None


def fewer(items: list[T]) -> Iterator[list[T]]:
    """Yield the list without some of its items, first without many."""
    size = len(items) // 2 or len(items)
    while size:
        for at in range(len(items) - size, -1, -size):
            yield items[:at] + items[at + size :]
        size //= 2


def fewer_or_smaller(steps: list[Step]) -> Iterator[list[Step]]:
    """Yield the steps without some of them; then the steps with one that is smaller."""
    yield from fewer(steps)
    for at, step in enumerate(steps):
        if step[0] in ("send", "lazy", "sure", "many") and step[-1] > SMALL_BYTES:
            yield [*steps[:at], [*step[:-1], SMALL_BYTES], *steps[at + 1 :]]


def _find(failure: Failure, workload: Workload, depth: Depth, deadline: float) -> Failure | None:
    """Return a failure of the same invariant in a smaller workload; None if there is none."""
    same = failure.violation.invariant
    if failure.order is None:
        found = Explorer(workload, depth=depth).explore(until=deadline).failures
        return next((each for each in found if each.violation.invariant == same), None)
    tour = FaultTour(workload)
    try:
        count = tour.counts((failure.order.operation,))[failure.order.operation]
    except Exception:
        return None  # without some of its steps a workload may be refused
    for nth in range(count):
        order = replace(failure.order, nth=nth)
        try:
            tour.check(order)
        except Violation as violation:
            if violation.invariant == same:
                return Failure(workload, -1, [], violation, order)
    return None
