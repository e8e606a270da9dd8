"""Every failure that was ever found, as files. They are tried first: each as it failed, and with
each other crash.

A fix may have moved the place, so the workload of each is explored whole, too.
"""

from __future__ import annotations

from pathlib import Path

from crash_tests.budget import Budget
from crash_tests.explore import Explorer
from crash_tests.failure import Failure, load
from crash_tests.faults import check_again
from crash_tests.oracle import Violation
from crash_tests.tally import Tally
from crash_tests.threads.tour import Tour, replayed

FOLDER = Path(__file__).parent / "corpus"


def files() -> list[Path]:
    return sorted(FOLDER.glob("*.json"))


def again(failure: Failure) -> Violation | None:
    """Return the failure that appears now at the place of `failure`; None if there is none."""
    if failure.order is not None:
        return check_again(failure)
    if failure.schedule is not None:
        return replayed(failure)[1]
    return Explorer(failure.workload).replay(failure)


class Corpus:
    """All files of the corpus, in order."""

    name = "corpus"

    def run(self, budget: Budget) -> Tally:
        total = Tally(self.name)
        for file in files():
            if budget.is_over:
                break
            tally = self._try(load(file), budget)
            total = total.plus(tally)
            budget.tell(total, file.stem)
            for failure in tally.failures:
                budget.found(failure)
        return total

    def _try(self, failure: Failure, budget: Budget) -> Tally:
        violation = again(failure)
        if violation is None and failure.schedule is not None:
            return Tour(failure.workload, budget.seed, budget.depth()).follow(failure.schedule)[0]
        if violation is None:
            explorer = Explorer(failure.workload, budget.seed, budget.depth())
            return explorer.explore(until=budget.until)
        failure.violation = violation
        return Tally(workloads=1, failures=[failure])
