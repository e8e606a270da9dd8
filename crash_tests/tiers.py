"""The tiers, in the order in which they run: what failed before comes first.

A tier is an object with a name, which a budget makes run. Whoever adds one adds it here.
"""

from __future__ import annotations

from typing import Protocol

from crash_tests.budget import Budget
from crash_tests.by_hand import ByHand
from crash_tests.calls.tier import Calls
from crash_tests.corpus import Corpus
from crash_tests.dead.story import Story as DeadLetters
from crash_tests.delayed.story import Story as Delayed
from crash_tests.erased.story import Story as Erasing
from crash_tests.exhaustive import Exhaustive
from crash_tests.faults import Faults
from crash_tests.groups.tier import Groups, Told
from crash_tests.home.story import Story as Homes
from crash_tests.home.workloads import HomeWorkloads
from crash_tests.ids.story import Story as MessageIds
from crash_tests.real.tiers import REAL
from crash_tests.schedules.story import Story as Schedules
from crash_tests.seeds import Seeds
from crash_tests.shipped.story import Story as Shipping
from crash_tests.tables import Tables
from crash_tests.tally import Tally
from crash_tests.threads.tier import Threads
from crash_tests.transport.tier import Transport
from crash_tests.tries.story import Story as Tries


class Tier(Protocol):
    """One way of breaking things."""

    @property
    def name(self) -> str: ...

    def run(self, budget: Budget) -> Tally:
        """Try what the budget allows. A tier that cannot run here reports why in the tally."""


def story_of_jobs(number: int) -> Told:
    """Return a story whose rows pyarrow makes. Nothing else here waits for that import."""
    from crash_tests.jobs.story import Story

    return Story(number)


# The part of the given time that each tier gets. What it does not use goes to the later ones.
TIERS: dict[Tier, float] = {
    Corpus(): 0.05,
    ByHand(): 0.2,
    Faults(): 0.2,
    Exhaustive(): 0.25,
    Seeds(): 0.3,
    Tables(): 0.05,
    Threads(): 0.2,
    Transport(): 0.1,
    Calls(): 0.15,
    Groups(): 0.1,
    Groups("dead", DeadLetters): 0.1,
    Groups("ids", MessageIds): 0.1,
    Groups("tries", Tries): 0.1,
    Groups("erased", Erasing, torn=4): 0.05,
    Groups("shipped", Shipping, torn=4): 0.05,
    Groups("home", Homes, share=4, torn=2, every=31): 0.1,
    HomeWorkloads(): 0.1,
    Groups("delayed", Delayed, torn=4): 0.1,
    Groups("schedules", Schedules, torn=4): 0.1,
    Groups("jobs", story_of_jobs, torn=4): 0.05,
    **dict.fromkeys(REAL, 0.06),
}
NAMES = [tier.name for tier in TIERS]


def chosen(names: list[str]) -> dict[Tier, float]:
    """Return the tiers with these names, or all."""
    return {tier: part for tier, part in TIERS.items() if not names or tier.name in names}


def seconds_of(tiers: dict[Tier, float], tier: Tier, left: float) -> float:
    """Return the share of `tier` in the seconds that are left for it and the tiers after it."""
    names = list(tiers)
    behind = names[names.index(tier) :]
    return left * tiers[tier] / sum(tiers[each] for each in behind)
