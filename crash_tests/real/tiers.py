"""The tiers of real crashes, as `python -m crash_tests` runs them beside the others."""

from __future__ import annotations

from typing import Protocol

from crash_tests.bound.tier import POSTGRES, SQLITE
from crash_tests.budget import Budget
from crash_tests.real.cut import EXT4, XFS
from crash_tests.real.full import FULL
from crash_tests.real.kills import KILLS
from crash_tests.real.reorder import BELOW_EXT4, BELOW_XFS
from crash_tests.real.tally import Tally
from crash_tests.tally import Tally as Sum


class Crashing(Protocol):
    """One way of crashing."""

    def run(self, budget: Budget) -> Tally: ...


class Real:
    """A tier of real crashes, under a name for the command line."""

    def __init__(self, name: str, tier: Crashing) -> None:
        self.name = name
        self._tier = tier

    def run(self, budget: Budget) -> Sum:
        total = self._tier.run(budget).summed(self.name)
        for failure in total.failures:
            budget.found(failure)
        return total


REAL = (
    Real("ext4", EXT4),
    Real("xfs", XFS),
    Real("below-ext4", BELOW_EXT4),
    Real("below-xfs", BELOW_XFS),
    Real("full", FULL),
    Real("kills", KILLS),
    Real("bound-sqlite", SQLITE),
    Real("bound-postgres", POSTGRES),
)
