"""Schedules of threads as a tier: programs by hand and from seeds in turn, or every
schedule of some.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count

from crash_tests.budget import Budget
from crash_tests.explore import Depth
from crash_tests.tally import Tally
from crash_tests.threads.programs import PROGRAMS, generate
from crash_tests.threads.tour import Tour

SCHEDULES = 200  # how many schedules a run without a budget has
OF_EACH_SEED = 5
FULL = 0.01


class Threads:
    """Random schedules; or, if that is asked for, each schedule with at most so many
    preemptions.
    """

    name = "threads"

    def run(self, budget: Budget) -> Tally:
        total = Tally(self.name)
        limit = SCHEDULES if budget.is_unlimited else budget.rounds
        bounded = budget.preemptions is not None
        for at, tally in self._every(budget) if bounded else self._by_chance(budget):
            note, total = tally.note or total.note, total.plus(tally)
            total.note = note
            budget.tell(total, at)
            for failure in tally.failures:
                budget.found(failure)
            if budget.is_over or (total.schedules == limit and not bounded):
                break
        return total

    def _programs(self, budget: Budget) -> list[Tour]:
        names = PROGRAMS if budget.workload is None else [budget.workload]
        return [Tour(PROGRAMS[name], budget.seed, self._depth(budget)) for name in names]

    def _depth(self, budget: Budget) -> Depth:
        """Return the depth. After a recovery threads make no difference, and other tiers look
        deeper there.
        """
        return replace(budget.depth(FULL), chain=budget.seconds is not None)

    def _by_chance(self, budget: Budget) -> Iterator[tuple[str, Tally]]:
        """Run a random schedule of each program by hand, then some of a program from a seed, and so
        on.
        """
        tours = self._programs(budget)
        for number in count():
            turn = list(tours)
            if budget.workload is None:
                seed = generate(budget.seed + number)
                turn += [Tour(seed, budget.seed, self._depth(budget))] * OF_EACH_SEED
            for tour in turn:
                if tour.failure is None:
                    yield tour.workload.name, tour.by_chance()
            if all(tour.failure is not None for tour in tours):
                break

    def _every(self, budget: Budget) -> Iterator[tuple[str, Tally]]:
        assert budget.preemptions is not None
        for tour in self._programs(budget):
            for done, (tally, left) in enumerate(tour.all_of(budget.preemptions), 1):
                rest = f", and at least {left:,} more" if left else ", which are all"
                tally.note = f"{tour.workload.name}: {done:,} schedules{rest}"
                yield tour.workload.name, tally
                if done == budget.rounds or tour.failure is not None:
                    break
