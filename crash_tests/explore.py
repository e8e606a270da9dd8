"""Every crash of a workload that the disk allows, and what recovery makes of each.

For each operation of the workload: the power fails there, or the process is killed. Of each
disk that this may leave: open it and compare with the oracle; close it and open it again; kill
the recovered engine and recover once more; let life go on; and crash recovery itself. A killed
process is followed by a power cut, because what was shown in between must stay.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from random import Random

from crash_tests.failure import Event, Failure, power
from crash_tests.oracle import Oracle, Violation
from crash_tests.run import Run, abandon, open_engine, options_of, violation_of
from crash_tests.trial import Trial, check_has_checkpoint
from crash_tests.workload import Workload
from fmq.testing import CrashDisk, Loss


@dataclass(slots=True)
class Depth:
    """How much is done with each state."""

    full: float = 0.2  # the share of states that are put through everything
    states_max: int = 400  # of one crash point
    chain: bool = True
    honest: bool = True


@dataclass(slots=True)
class Tally:
    """What has been explored."""

    points: int = 0
    states: int = 0
    recoveries: int = 0
    seconds: float = 0.0
    failures: list[Failure] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        self.points += other.points
        self.states += other.states
        self.recoveries += other.recoveries
        self.seconds += other.seconds
        self.failures += other.failures

    def __str__(self) -> str:
        rate = self.states / self.seconds if self.seconds else 0
        return (
            f"{self.points:,} crash points, {self.states:,} distinct states, "
            f"{self.recoveries:,} recoveries, {rate:,.0f} states/s, {len(self.failures)} failures"
        )


class Explorer:
    """Explores one workload."""

    def __init__(
        self, workload: Workload, seed: int = 0, depth: Depth | None = None, *, stop_at: int = 1
    ) -> None:
        self.workload = workload
        self.depth = depth or Depth()
        self.tally = Tally()
        self._options = options_of(workload)
        self.random = Random(f"{seed} {workload.name}")
        self._known: set[tuple[str, str, int]] = set()
        self._base = self._template()
        self._stop_at = stop_at

    def _template(self) -> CrashDisk:
        """A directory that has been made and closed, unless the workload does that itself."""
        disk = CrashDisk(honest=self.depth.honest)
        if not self.workload.fresh:
            open_engine(disk, self._options).close()
        return disk

    def start(self, crash_at: int | None = None) -> Run:
        """A run that has not begun."""
        disk = self._base.after_kill(crash_at=crash_at)
        return Run(self.workload, disk, crash_at=crash_at)

    def count(self) -> int:
        """How many operations the workload has; Violation if it goes wrong without any crash."""
        run = self.start()
        run.go()
        abandon(run.engine)
        return run.operations

    def explore(self, crash_at: int | None = None, *, until: float = float("inf")) -> Tally:
        """All crash points, or one; stops at the first failures and at the time `until`."""
        began = time.monotonic()
        try:
            total = self.count()
            points = range(total + 1) if crash_at is None else (crash_at,)
            for point in points:
                if time.monotonic() > until or len(self.tally.failures) >= self._stop_at:
                    break
                self._point(point)
        except Exception as error:
            self._failed(-1, [], error)
        self.tally.seconds += time.monotonic() - began
        return self.tally

    def _failed(self, crash_at: int, path: list[Event], error: BaseException) -> None:
        failure = Failure(self.workload, crash_at, path, violation_of(error))
        failure.violation.__cause__ = error
        self.tally.failures.append(failure)

    def _point(self, crash_at: int) -> None:
        run = self.start(crash_at)
        run.go()
        self.tally.points += 1
        oracle = run.oracle
        for event, state in self._crashes(run.disk):
            key = state.fingerprint(), event["do"], _epoch(oracle)
            if key in self._known:
                continue
            self._known.add(key)
            self.tally.states += 1
            full = self.random.random() < self.depth.full
            if not self._try(crash_at, [event], state, oracle, full=full):
                break
        abandon(run.engine)

    def _crashes(self, disk: CrashDisk) -> Iterator[tuple[Event, CrashDisk]]:
        seed = self.random.randrange(1 << 30)
        for written in (True, False):
            yield {"do": "kill", "written": written}, disk.after_kill(written=written)
        for state in islice(disk.states(seed), self.depth.states_max):
            assert state.loss is not None
            yield power(state.loss), state

    def replay(self, failure: Failure) -> Violation | None:
        """What breaks now where `failure` broke; None if nothing does."""
        try:
            run = self.start(None if failure.crash_at < 0 else failure.crash_at)
            run.go()
            if failure.crash_at < 0:
                return None
            copy, (first, *rest) = run.disk.after_kill(), failure.path
            if first["do"] == "kill":
                state = run.disk.after_kill(written=first["written"])
            else:
                state = copy.after(Loss.from_json(first))
            Trial(self._options, state, run.oracle, [first], self.random).replay(rest)
        except Exception as error:
            violation = violation_of(error)
            violation.__cause__ = error
            return violation
        return None

    def _try(
        self,
        crash_at: int,
        path: list[Event],
        state: CrashDisk,
        oracle: Oracle,
        *,
        full: bool,
    ) -> bool:
        """Put one state through recovery and what follows; False if a promise was broken."""
        trial = Trial(self._options, state, oracle, path, self.random)
        try:
            if not self.workload.fresh:
                check_has_checkpoint(state)
            trial.recover()
            if full:
                trial.read_only()
                trial.rebuild()
                trial.close_and_recover_again()
                trial.kill_and_recover_again()
                trial.live_on()
                trial.recovery_crashes()
            if self.depth.chain and (path[-1]["do"] == "kill" or full):
                trial.power_loss_after_showing()
        except Exception as error:
            self._failed(crash_at, trial.path, error)
            return False
        finally:
            self.tally.recoveries += trial.recoveries
        return True


def _epoch(oracle: Oracle) -> int:
    """Tells apart moments at which different things had been promised."""
    return hash(tuple((name, unit.fates) for name, unit in oracle.units.items()))
