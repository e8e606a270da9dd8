"""The counts of what a tier has explored and found."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from crash_tests.failure import Failure


@dataclass(slots=True)
class Tally:
    """The counts of one workload, or the sum of many. `not_run` says why nothing ran."""

    name: str = ""
    workloads: int = 0
    schedules: int = 0  # schedules of threads
    points: int = 0
    points_there: int = 0  # crash points that there are; perhaps only one was wanted
    states: int = 0  # distinct disks that crashes of the workload left, with what was promised
    deeper: int = 0  # distinct disks after crashes inside recovery, and after later crashes
    recoveries: int = 0  # how often a directory was opened
    faults: int = 0  # operations that were made to fail
    seconds: float = 0.0
    cpu_seconds: float = 0.0  # processor time of all processes together
    failures: list[Failure] = field(default_factory=list)
    not_run: str | None = None
    note: str = ""  # a remark for the reader of the summary

    def plus(self, other: Tally) -> Tally:
        """Return the sum of both, under the name of this one."""
        sums: dict[str, Any] = {
            each.name: getattr(self, each.name) + getattr(other, each.name)
            for each in fields(self)
            if each.name not in ("name", "not_run", "note")
        }
        return Tally(self.name, **sums)

    @property
    def all_states(self) -> int:
        return self.states + self.deeper

    @property
    def is_nothing(self) -> bool:
        """Return whether nothing at all was tried."""
        tried = self.points, self.schedules, self.states, self.recoveries, self.faults
        return not (any(tried) or self.failures)

    @property
    def rate(self) -> float:
        """Return the number of distinct states a second."""
        return self.all_states / self.seconds if self.seconds else 0.0

    @property
    def core_rate(self) -> float:
        """Return the number of distinct states a second of processor time."""
        return self.all_states / self.cpu_seconds if self.cpu_seconds else 0.0

    def as_json(self) -> dict[str, Any]:
        numbers = {each.name: getattr(self, each.name) for each in fields(self)}
        return {**numbers, "failures": [each.as_json() for each in self.failures]}

    def __str__(self) -> str:
        if self.not_run is not None:
            return f"NOT RUN: {self.not_run}"
        faults = f"{self.faults:,} faults, " if self.faults else ""
        schedules = f"{self.schedules:,} schedules, " if self.schedules else ""
        core = f" ({self.core_rate:,.0f} a second of a core)" if self.cpu_seconds else ""
        return (
            f"{self.workloads:,} workloads, {schedules}{self.points:,} crash points, {faults}"
            f"{self.all_states:,} distinct states ({self.deeper:,} of them deeper), "
            f"{self.recoveries:,} recoveries, {self.rate:,.0f} states/s{core}, "
            f"{len(self.failures)} failures{self.note and '; '}{self.note}"
        )
