"""What has been explored, in numbers, and what was found."""

from __future__ import annotations

from dataclasses import dataclass, field

from crash_tests.failure import Failure


@dataclass(slots=True)
class Tally:
    """One workload's share, or the sum of many."""

    workloads: int = 0
    points: int = 0
    states: int = 0  # distinct disks that crashes of the workload left, with what was promised
    deeper: int = 0  # the same, after crashes inside recovery and of what came after it
    recoveries: int = 0  # how often a directory was opened
    faults: int = 0  # operations that were made to fail
    seconds: float = 0.0
    failures: list[Failure] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        self.workloads += other.workloads
        self.points += other.points
        self.states += other.states
        self.deeper += other.deeper
        self.recoveries += other.recoveries
        self.faults += other.faults
        self.seconds += other.seconds
        self.failures += other.failures

    @property
    def rate(self) -> float:
        """Distinct states a second."""
        return (self.states + self.deeper) / self.seconds if self.seconds else 0.0

    def __str__(self) -> str:
        return (
            f"{self.points:,} crash points, {self.states:,} + {self.deeper:,} distinct states, "
            f"{self.recoveries:,} recoveries, {self.rate:,.0f} states/s, "
            f"{len(self.failures)} failures"
        )
