"""Explores one workload after another, as long as the budget lasts."""

from __future__ import annotations

import time
from array import array
from collections.abc import Iterable, Iterator

from crash_tests.budget import Budget
from crash_tests.explore import Depth
from crash_tests.many import Explored, Explorers, How, in_processes, spare_the_collector
from crash_tests.tally import Tally
from crash_tests.workload import Workload

FAILURES_MAX = 10  # limit of failures of one tier: more would prove nothing more


def sweep(
    name: str,
    workloads: Iterable[Workload],
    budget: Budget,
    depth: Depth | None = None,
    *,
    last_step_only: bool = False,
) -> Tally:
    """Explore `workloads`, each up to its first failure."""
    how = How(budget.seed, depth or budget.depth(), budget.crash_at, last_step_only)
    return Sweep(name, how, budget).go(workloads)


class Sweep:
    """Many workloads, and the distinct states of all of them together."""

    def __init__(self, name: str, how: How, budget: Budget) -> None:
        self._how = how
        self._budget = budget
        self._total = Tally(name)
        self._known: set[int] = set()
        self._began = time.monotonic()

    def go(self, workloads: Iterable[Workload]) -> Tally:
        budget = self._budget
        if budget.jobs > 1:
            explored = in_processes(workloads, self._how, budget.jobs)
        else:
            explored = self._one_by_one(workloads)
        for each in explored:
            self._add(each)
            enough = budget.states is not None and self._total.all_states >= budget.states
            if enough or budget.is_over or len(self._total.failures) >= FAILURES_MAX:
                break
        return self._total

    def _one_by_one(self, workloads: Iterable[Workload]) -> Iterator[Explored]:
        spare_the_collector()
        explorers = Explorers(self._how)
        for workload in workloads:
            if self._budget.is_over:
                break
            explorer = explorers.explorer(workload)
            for tally in explorer.tour(self._how.crash_at):
                if self._budget.is_over:
                    tally.workloads = 0  # the workload is not finished
                    break
                self._budget.tell(self._total.plus(tally), workload.name)
            yield explorers.done(explorer)

    def _add(self, explored: Explored) -> None:
        """Add the results of exploring a workload to the tally, and report progress."""
        workload, tally = explored.workload, explored.tally
        if explored.failed and not tally.failures:
            tally.failures += Explorers(self._how).explore(workload).tally.failures
            assert tally.failures, f"failed in another process, and not here: {explored.failed}"
        tally.states, tally.deeper = self._new(explored.states), self._new(explored.deeper)
        self._total = self._total.plus(tally)
        self._total.seconds = time.monotonic() - self._began
        self._budget.tell(self._total, workload.name)
        for failure in tally.failures:
            self._budget.found(failure)

    def _new(self, states: array[int]) -> int:
        before = len(self._known)
        self._known.update(states)
        return len(self._known) - before
