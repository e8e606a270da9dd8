"""The tiers of real crashes, as `python -m crash_tests` runs them beside the others.

Stores count as workloads, and crashes as points. A failure needs no file: it has a folder.
"""

from __future__ import annotations

from typing import Protocol

from crash_tests import budget as all_tiers
from crash_tests.failure import Failure
from crash_tests.real.bound import BOUND
from crash_tests.real.cut import EXT4, XFS
from crash_tests.real.kills import KILLS
from crash_tests.real.reorder import BELOW_EXT4, BELOW_XFS
from crash_tests.real.tally import Budget, Tally
from crash_tests.tally import Tally as Sum
from crash_tests.workload import Workload


class Crashing(Protocol):
    """One way of crashing."""

    def run(self, budget: Budget) -> Tally: ...


class Real:
    """A tier under a name that can be typed."""

    def __init__(self, name: str, tier: Crashing) -> None:
        self.name = name
        self._tier = tier

    def run(self, budget: all_tiers.Budget) -> Sum:
        def tell(tally: Tally) -> None:
            budget.tell(self._sum(tally), f"store {tally.stores}")

        found = self._tier.run(
            Budget(
                budget.seed,
                budget.seconds,
                budget.rounds,
                budget.directory,
                budget.failures,
                tell,
            )
        )
        total = self._sum(found)
        for failure in total.failures:
            budget.found(failure)
        return total

    def _sum(self, tally: Tally) -> Sum:
        return Sum(
            self.name,
            workloads=tally.stores,
            points=tally.rounds,
            recoveries=tally.rounds,
            seconds=tally.seconds,
            failures=[Failure(Workload(self.name, []), -1, [], each) for each in tally.failures],
            not_run=tally.not_run,
            note=f"{tally.promises:,} promises, {tally.controls} controls found out",
        )


REAL = (
    Real("ext4", EXT4),
    Real("xfs", XFS),
    Real("below-ext4", BELOW_EXT4),
    Real("below-xfs", BELOW_XFS),
    Real("kills", KILLS),
    Real("bound", BOUND),
)
