"""How much a tier may try, and what came of it."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from crash_tests.oracle import Violation


def _nobody(*_: object) -> None:
    pass


@dataclass(slots=True)
class Budget:
    """What a tier is given. Without `seconds` and `rounds` it does its share of every run."""

    seed: int
    seconds: float | None = None
    rounds: int | None = None  # crashes
    directory: Path = field(default_factory=lambda: Path(tempfile.gettempdir()))
    failures: Path = Path("crash-failures")  # what is kept of a failure
    tell: Callable[[Tally], None] = _nobody  # how far it is, after each round
    began: float = field(default_factory=time.monotonic)

    @property
    def is_over(self) -> bool:
        return self.seconds is not None and time.monotonic() >= self.began + self.seconds

    def rounds_of(self, share: int) -> int | None:
        """How many rounds to make; None if time alone decides."""
        if self.rounds is None and self.seconds is None:
            return share
        return self.rounds

    def allows(self, done: int, share: int) -> bool:
        """Whether one more round may follow those that are done."""
        rounds = self.rounds_of(share)
        return (rounds is None or done < rounds) and not self.is_over


@dataclass(slots=True)
class Tally:
    """What a tier has tried; `not_run` says why it did not."""

    name: str
    rounds: int = 0
    stores: int = 0
    promises: int = 0  # acknowledgements that were held against what was there
    controls: int = 0  # planted lies that were found out
    seconds: float = 0.0
    failures: list[Violation] = field(default_factory=list)
    not_run: str | None = None
    began: float = field(default_factory=time.monotonic)

    def add_round(self, budget: Budget) -> None:
        """One more crash has been survived."""
        self.rounds += 1
        self.stop()
        budget.tell(self)

    def stop(self) -> None:
        self.seconds = time.monotonic() - self.began

    def __str__(self) -> str:
        if self.not_run is not None:
            return f"NOT RUN: {self.name}: {self.not_run}"
        return (
            f"{self.name}: {self.rounds:,} crashes of {self.stores:,} stores, "
            f"{self.promises:,} promises, {self.controls} controls found out, "
            f"{self.seconds:,.0f} s, {len(self.failures)} failures"
        )
