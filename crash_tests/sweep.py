"""Exploring one workload after the other, as long as the budget lasts."""

from __future__ import annotations

from collections.abc import Iterable

from crash_tests.budget import Budget
from crash_tests.explore import Depth, Explorer
from crash_tests.tally import Tally
from crash_tests.workload import Workload

FAILURES_MAX = 10  # of one tier: what is that broken needs no further proof


def sweep(
    name: str,
    workloads: Iterable[Workload],
    budget: Budget,
    depth: Depth | None = None,
    *,
    last_step_only: bool = False,
) -> Tally:
    """Explore `workloads`, each up to its first failure."""
    total = Tally(name)
    depth = depth or budget.depth()
    for workload in workloads:
        if budget.is_over or len(total.failures) >= FAILURES_MAX:
            break
        since = len(workload.steps) - 1 if last_step_only else None
        explorer = Explorer(workload, budget.seed, depth, since=since)
        for tally in explorer.tour(budget.crash_at):
            if budget.is_over:
                tally.workloads = 0  # it is not done
                break
            budget.tell(total.plus(tally), workload.name)
        total = total.plus(explorer.tally)
        budget.tell(total, workload.name)
        for failure in explorer.tally.failures:
            budget.found(failure)
    return total
