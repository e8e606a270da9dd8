"""Makes a failure of threads smaller: fewer or smaller steps, and fewer choices."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import count

from crash_tests.explore import Depth
from crash_tests.failure import Failure
from crash_tests.shrink import fewer, fewer_or_smaller
from crash_tests.threads.schedule import Schedule
from crash_tests.threads.tour import Tour
from crash_tests.workload import Workload

# How long to look for another schedule, if the old one does not fail any more. So many are tried
# even if the process is stopped meanwhile.
SEARCH_SECONDS, SCHEDULES_MIN = 1.5, 3


def shrink(failure: Failure, depth: Depth, seconds: float = 20.0) -> Failure:
    """Return the smallest failure of the same invariant that is found in time."""
    finder = _Finder(failure.violation.invariant, depth, time.monotonic() + seconds)
    smaller: Failure | None = failure
    while smaller is not None:
        failure = smaller
        smaller = finder.with_fewer_steps(failure)
    smaller = failure
    while smaller is not None:
        failure = smaller
        smaller = finder.with_fewer_choices(failure)
    return failure


def _smaller(workload: Workload) -> Iterator[Workload]:
    """Yield smaller workloads: one thread less, fewer steps, or smaller bodies. A thread without
    steps stays in the list, so that the others keep their names.
    """
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
    """Looks for a failure of the same invariant, as long as there is time."""

    def __init__(self, invariant: str, depth: Depth, deadline: float) -> None:
        self._invariant = invariant
        self._depth = depth
        self._deadline = deadline

    def with_fewer_steps(self, failure: Failure) -> Failure | None:
        """Return a failure under the schedule of `failure`, or else under a simple one, or any."""
        for workload in _smaller(failure.workload):
            found = self._follow(workload, failure.schedule) or self._search(workload)
            if found is not None or self._is_late():
                return found
        return None

    def with_fewer_choices(self, failure: Failure) -> Failure | None:
        schedule = failure.schedule
        assert schedule is not None
        for choices in fewer(list(schedule.choices)):
            found = self._follow(failure.workload, replace(schedule, choices=tuple(choices)))
            if found is not None or self._is_late():
                return found
        return None

    def _follow(self, workload: Workload, schedule: Schedule | None) -> Failure | None:
        assert schedule is not None
        tour = Tour(workload, 0, self._depth)
        tour.follow(schedule)
        return self._of(tour)

    def _search(self, workload: Workload) -> Failure | None:
        until = time.monotonic() + SEARCH_SECONDS
        tour = Tour(workload, 0, self._depth)
        simple = tour.all_of(1)
        for tried in count():
            if tour.failure is not None or (tried >= SCHEDULES_MIN and time.monotonic() >= until):
                break
            if next(simple, None) is None or tour.failure is None:
                tour.by_chance()
        return self._of(tour)

    def _of(self, tour: Tour) -> Failure | None:
        found = tour.failure
        return found if found is not None and found.violation.invariant == self._invariant else None

    def _is_late(self) -> bool:
        return time.monotonic() >= self._deadline
