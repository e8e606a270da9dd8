"""The tier: rounds by number, in which callers meet in one manner after the other."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

from crash_tests.budget import Budget
from crash_tests.calls.story import MANNERS, Story
from crash_tests.engines import violation_of
from crash_tests.failure import Failure
from crash_tests.oracle import Violation
from crash_tests.tally import Tally
from crash_tests.workload import Workload

SHARE = 60  # how many rounds a run without a budget has
LAST = 6  # how many of the calls before a failure are printed


class Calls:
    """Public calls at random."""

    name = "calls"

    def run(self, budget: Budget) -> Tally:
        """Run rounds until the budget is spent, or one fails."""
        tally = Tally(self.name)
        began = time.monotonic(), time.process_time()
        calls = 0
        with _quietly():
            for number in count(budget.first):
                enough = budget.states is not None and tally.states >= budget.states
                if enough or tally.failures or not budget.allows(tally.workloads, SHARE):
                    break
                story = Story(budget.seed + number)
                self.tell(story, tally)
                calls += story.calls
                tally.workloads += 1
                tally.seconds = time.monotonic() - began[0]
                tally.cpu_seconds = time.process_time() - began[1]
                budget.tell(tally, f"story {story.seed}")
        for failure in tally.failures:
            budget.found(failure)
        tally.note = f"{calls:,} calls; go on with --from {budget.first + tally.workloads}"
        return tally

    def tell(self, story: Story, tally: Tally) -> None:
        """Run one round, and note its result."""
        try:
            story.tell()
        except Exception as error:
            tally.failures.append(_failure(story, error))
        tally.schedules += story.manner != MANNERS[1]
        tally.states += len(story.crashes)
        tally.points += len(story.crashes)
        tally.recoveries += story.recoveries


def _failure(story: Story, error: Exception) -> Failure:
    found = violation_of(error)
    again = f"--tier calls --seed {story.seed} --rounds 1, {story.manner}"
    violation = Violation(found.invariant, f"{found.what} ({again})")
    violation.__cause__ = error
    last = [{"do": each} for each in story.hands.said[-LAST:]]
    return Failure(Workload(f"calls {story.seed}", []), -1, last, violation)


@contextmanager
def _quietly() -> Iterator[None]:
    """Log nothing of what callers do wrong, and let threads take turns often."""
    logger = logging.getLogger("fmq")
    level, interval = logger.level, sys.getswitchinterval()
    logger.setLevel(logging.CRITICAL)
    sys.setswitchinterval(1e-5)
    try:
        yield
    finally:
        logger.setLevel(level)
        sys.setswitchinterval(interval)
