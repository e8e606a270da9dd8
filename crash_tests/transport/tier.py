"""Stories drawn by number. Each is run once with every blow that may fall."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import count

from crash_tests.budget import Budget
from crash_tests.engines import violation_of
from crash_tests.failure import Failure
from crash_tests.oracle import Violation
from crash_tests.tally import Tally
from crash_tests.transport.blow import Blow
from crash_tests.transport.story import draw
from crash_tests.transport.tellings import Tellings
from crash_tests.workload import Workload

SHARE = 2  # how many stories a run without a budget has


class Transport:
    """Clients and a server in memory, on a disk that crashes."""

    name = "transport"

    def run(self, budget: Budget) -> Tally:
        """Run stories until the budget is spent, or one fails."""
        tally = Tally(self.name)
        began = time.monotonic(), time.process_time()
        for number in count(budget.first):
            enough = budget.states is not None and tally.states >= budget.states
            if enough or tally.failures or not budget.allows(tally.workloads, SHARE):
                break
            tally.workloads += 1
            for _ in self._tellings(budget.seed + number, tally):
                tally.seconds = time.monotonic() - began[0]
                tally.cpu_seconds = time.process_time() - began[1]
                budget.tell(tally, f"story {budget.seed + number}")
                if budget.is_over:
                    break
        for failure in tally.failures:
            budget.found(failure)
        tally.note = f"go on with --from {budget.first + tally.workloads}"
        return tally

    def _tellings(self, seed: int, tally: Tally) -> Iterator[None]:
        """Run one story with each blow, until one fails. Of the blows that end alike only one is
        tried; in another story it is another one.
        """
        tellings = Tellings(draw(seed))
        blow = Blow(-1, "nothing")
        try:
            for number, alike in enumerate(tellings.blows(), seed):
                blow = alike[number % len(alike)]
                server = tellings.tell(blow)
                tally.points += len(alike)
                tally.states += 1
                tally.recoveries += server.recoveries
                yield
        except Exception as error:
            tally.failures.append(_failure(f"story {seed}", blow, error))


def _failure(story: str, blow: Blow, error: Exception) -> Failure:
    found = violation_of(error)
    again = f"--tier transport --seed {story.split()[1]} --rounds 1"
    violation = Violation(found.invariant, f"{found.what} ({again})")
    violation.__cause__ = error
    how = f"{blow.how}, number {blow.loss} of its losses" if blow.how == "power" else blow.how
    return Failure(Workload(story, []), blow.at, [{"do": how}], violation)
