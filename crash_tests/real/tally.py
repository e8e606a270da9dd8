"""What a tier of real crashes has tried, and its results."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from crash_tests.budget import Budget
from crash_tests.failure import Failure
from crash_tests.oracle import Violation
from crash_tests.tally import Tally as Sum
from crash_tests.workload import Workload


@dataclass(slots=True)
class Tally:
    """The counts of a tier. `not_run` says why nothing was tried."""

    name: str
    rounds: int = 0
    stores: int = 0
    promises: int = 0  # acknowledgements that were compared with what was there
    controls: int = 0  # planted lies that were found out
    seconds: float = 0.0
    failures: list[Violation] = field(default_factory=list)
    not_run: str | None = None
    note: str = ""  # a remark for the reader of the summary
    began: float = field(default_factory=time.monotonic)

    def rounds_of(self, budget: Budget, share: int, most: int) -> Iterator[None]:
        """Yield once for each round that the budget allows, at most `most` times, and count it."""
        for _ in range(most):
            if not budget.allows(self.rounds, share):
                return
            yield
            self.add_round(budget)

    def add_round(self, budget: Budget) -> None:
        """Count one more crash that was survived."""
        self.rounds += 1
        self.stop()
        budget.tell(self.summed(self.name), f"store {self.stores}")

    @contextmanager
    def found_out(self, lie: str) -> Iterator[None]:
        """Expect a Violation in this block, in which the fault `lie` is simulated (a control)."""
        try:
            yield
        except Violation:
            self.controls += 1
        else:
            self.failures.append(Violation("control", f"{lie}, and nothing was lost"))

    def stop(self) -> None:
        self.seconds = time.monotonic() - self.began

    def summed(self, name: str) -> Sum:
        """Return the sum in the words of the other tiers: stores are workloads, crashes are points.

        A failure needs no file: it has a folder.
        """
        note = f"{self.promises:,} promises, {self.controls} controls found out"
        return Sum(
            name,
            workloads=self.stores,
            points=self.rounds,
            recoveries=self.rounds,
            seconds=self.seconds,
            failures=[Failure(Workload(name, []), -1, [], each) for each in self.failures],
            not_run=self.not_run,
            note="; ".join(filter(None, (note, self.note))),
        )

    def __str__(self) -> str:
        if self.not_run is not None:
            return f"NOT RUN: {self.name}: {self.not_run}"
        return (
            f"{self.name}: {self.rounds:,} crashes of {self.stores:,} stores, "
            f"{self.promises:,} promises, {self.controls} controls found out, "
            f"{self.seconds:,.0f} s, {len(self.failures)} failures"
            f"{self.note and '; '}{self.note}"
        )
