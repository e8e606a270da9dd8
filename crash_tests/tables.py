"""Reads the journal as a table on every disk that a crash of the corpus's workloads leaves.

Needs pyarrow, and says so where it is missing; Spark's workers run the same code.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import islice

from crash_tests.budget import Budget
from crash_tests.by_hand import WORKLOADS
from crash_tests.corpus import files
from crash_tests.engines import options_of, violation_of
from crash_tests.explore import Explorer, Moment
from crash_tests.failure import Event, Failure, load
from crash_tests.tally import Tally
from crash_tests.trial import Trial
from crash_tests.workload import Workload
from fmq.testing import CrashDisk


class Tables:
    """The tier: the states of the corpus's workloads, and then of those by hand, read as tables."""

    name = "tables"

    def run(self, budget: Budget) -> Tally:
        try:
            import fmq.table  # noqa: F401
        except ImportError as error:
            return Tally(self.name, not_run=str(error))
        total = Tally(self.name)
        for workload in self._chosen(budget):
            if budget.is_over:
                break
            tally = _Tour(workload, budget).go()
            total = total.plus(tally)
            budget.tell(total, workload.name)
            for failure in tally.failures:
                budget.found(failure)
        return total

    @staticmethod
    def _chosen(budget: Budget) -> Iterator[Workload]:
        if budget.workload is not None:
            yield WORKLOADS[budget.workload]
            return
        found = (load(file).workload for file in files())
        yield from (workload for workload in found if not workload.threads)
        if not budget.is_unlimited:
            yield from WORKLOADS.values()


class _Tour:
    """Tries all crashes of one workload; with rounds, some states of each crash point."""

    def __init__(self, workload: Workload, budget: Budget) -> None:
        self._explorer = Explorer(workload, budget.seed)
        self._options = options_of(workload)
        self._budget = budget
        self._seen: set[str] = set()
        self._tally = Tally("tables", workloads=1)

    def go(self) -> Tally:
        tally = self._tally
        began = time.monotonic()
        for point, moment in self._explorer.moments():
            if self._budget.is_over or tally.failures:
                break
            if (point + self._budget.seed) % self._budget.every:
                continue
            tally.points += 1
            for event, state in islice(self._explorer.crashes(moment.disk), self._budget.rounds):
                if state.fingerprint() not in self._seen:
                    self._seen.add(state.fingerprint())
                    self._try(point, moment, event, state)
        tally.states = tally.recoveries = len(self._seen)
        tally.seconds = time.monotonic() - began
        return tally

    def _try(self, point: int, moment: Moment, event: Event, state: CrashDisk) -> None:
        trial = Trial(self._options, state, moment.oracle, [event], self._budget.seed)
        try:
            trial.as_table()
        except Exception as error:
            failure = Failure(self._explorer.workload, point, trial.path, violation_of(error))
            self._tally.failures.append(failure)
