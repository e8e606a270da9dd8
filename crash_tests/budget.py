"""How much a tier may try, and where it reports what it finds."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from crash_tests.explore import Depth
from crash_tests.failure import Failure
from crash_tests.tally import Tally


def _nobody(*_: object) -> None:
    pass


@dataclass(slots=True)
class Budget:
    """The budget of one tier. Without `seconds` and `rounds` the tier does its share of every
    run.
    """

    seed: int
    seconds: float | None = None
    rounds: int | None = None  # workloads, faults, crashes: whatever the tier counts
    first: int = 0  # number of the first workload, fault or crash to run
    workload: str | None = None  # try only this one
    crash_at: int | None = None  # crash only before this operation
    preemptions: int | None = None  # try every schedule of threads with at most so many
    states: int | None = None  # go on until there are so many distinct states
    jobs: int = 1  # processes that share the work
    # The share of states on which everything is tried; None: as the tier has it.
    full: float | None = None
    directory: Path = field(default_factory=lambda: Path(tempfile.gettempdir()))
    failures: Path = Path("crash-failures")
    every: int = 1  # a crash is tried at one of so many crash points; the test suite has few
    # Reports progress: the tally, and what is being tried.
    tell: Callable[[Tally, str], None] = _nobody
    found: Callable[[Failure], None] = _nobody
    began: float = field(default_factory=time.monotonic)

    @property
    def until(self) -> float:
        return float("inf") if self.seconds is None else self.began + self.seconds

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self.until

    @property
    def is_unlimited(self) -> bool:
        """Return whether no limit was given, so that the tier does its share of every run."""
        return self.rounds is None and self.seconds is None and self.states is None

    def allows(self, done: int, share: int) -> bool:
        """Return whether a tier may try one more after `done`, if `share` is its share of every
        run.
        """
        rounds = share if self.is_unlimited else self.rounds
        return (rounds is None or done < rounds) and not self.is_over

    def depth(self, share: float = 0.2) -> Depth:
        return Depth(full=share if self.full is None else self.full, every=self.every)
