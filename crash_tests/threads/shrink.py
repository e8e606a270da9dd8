"""Making a failure of threads small: fewer steps, smaller ones, fewer choices."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeVar

from crash_tests.explore import Depth
from crash_tests.failure import Failure
from crash_tests.shrink import fewer, fewer_or_smaller
from crash_tests.threads.tour import Tour
from crash_tests.workload import Workload

T = TypeVar("T")
SEARCH_SECONDS = 1.5  # for another schedule, where the old one does not fail any more


def shrink(failure: Failure, depth: Depth, seconds: float = 20.0) -> Failure:
    """The smallest failure of the same invariant that is found in time."""
    deadline = time.monotonic() + seconds
    find = _Finder(failure.violation.invariant, depth)
    smaller: Failure | None = failure
    while smaller is not None and time.monotonic() < deadline:
        failure = smaller
        smaller = _first(_smaller(failure.workload), lambda each: find.any(each, failure), deadline)
    smaller = failure
    while smaller is not None and time.monotonic() < deadline:
        failure = smaller
        assert failure.schedule is not None
        schedule = failure.schedule
        shorter = (replace(schedule, choices=tuple(each)) for each in fewer(list(schedule.choices)))
        smaller = _first(
            shorter, lambda each: find.same(replace(failure, schedule=each)), deadline
        )
    return failure


def _first(each: Iterator[T], find: Callable[[T], Failure | None], until: float) -> Failure | None:
    for one in each:
        if time.monotonic() >= until:
            break
        found = find(one)
        if found is not None:
            return found
    return None


def _smaller(workload: Workload) -> Iterator[Workload]:
    """Without a thread, some steps, or what they send. Whoever has none keeps the name."""
    threads = workload.threads
    for i, steps in enumerate(threads):
        if steps and sum(map(bool, threads)) > 1:
            yield replace(workload, threads=[*threads[:i], [], *threads[i + 1 :]])
    if workload.background:
        yield replace(workload, background=False)
    for i, steps in enumerate(threads):
        for left in fewer_or_smaller(steps):
            if left:
                yield replace(workload, threads=[*threads[:i], left, *threads[i + 1 :]])
    for left in fewer_or_smaller(workload.steps):
        yield replace(workload, steps=left)


class _Finder:
    """Looks for the same invariant broken."""

    def __init__(self, invariant: str, depth: Depth) -> None:
        self._invariant = invariant
        self._depth = depth

    def same(self, failure: Failure) -> Failure | None:
        """Under the same schedule."""
        assert failure.schedule is not None
        tour = Tour(failure.workload, 0, self._depth)
        tour.follow(failure.schedule)
        return self._of(tour)

    def any(self, workload: Workload, failure: Failure) -> Failure | None:
        """Under that of `failure`, or else under a simple one, or any."""
        found = self.same(replace(failure, workload=workload))
        until = time.monotonic() + SEARCH_SECONDS
        tour = Tour(workload, 0, self._depth)
        simple = tour.all_of(1)
        while found is None and tour.failure is None and time.monotonic() < until:
            next(simple, None)
            if tour.failure is None:
                tour.by_chance()
        return found or self._of(tour)

    def _of(self, tour: Tour) -> Failure | None:
        found = tour.failure
        return found if found is not None and found.violation.invariant == self._invariant else None
