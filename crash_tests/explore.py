"""Every crash of a workload that the disk allows, and what recovery makes of each.

For each operation of the workload: the power fails there, or the process is killed. Of each
disk that this may leave: open it and compare with the oracle; close it and open it again; kill
the recovered engine and recover once more; let life go on; and crash recovery itself. A killed
process is followed by a power cut, because what was shown in between must stay.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from random import Random

from crash_tests.directories import check_has_checkpoint
from crash_tests.engines import open_engine, options_of, violation_of
from crash_tests.failure import Event, Failure, power
from crash_tests.memory import Memory, State
from crash_tests.oracle import Oracle, Violation
from crash_tests.run import Run
from crash_tests.tally import Tally
from crash_tests.trial import Trial
from crash_tests.workload import Workload
from fmq.testing import CrashDisk, Loss


@dataclass(slots=True)
class Depth:
    """How much is done with each state."""

    full: float = 0.2  # the share of states that are put through everything
    states_max: int = 400  # of one crash point
    chain: bool = True
    honest: bool = True


@dataclass(frozen=True, slots=True)
class Moment:
    """The disk as it were if the power failed before one operation, and what is promised then."""

    disk: CrashDisk
    oracle: Oracle


class Explorer:
    """Explores one workload."""

    def __init__(
        self, workload: Workload, seed: int = 0, depth: Depth | None = None, *, stop_at: int = 1
    ) -> None:
        self.workload = workload
        self.depth = depth or Depth()
        self.tally = Tally(workloads=1)
        self._options = options_of(workload)
        self.random = Random(f"{seed} {workload.name}")
        self._memory = Memory()
        self._states: set[State] = set()
        self._sound: dict[bytes, bool] = {}
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

    def moments(self) -> list[Moment]:
        """Every moment of the workload; Violation if it goes wrong without any crash."""
        moments: list[Moment] = []
        run = self.start()
        run.watch(lambda run, disk: moments.append(Moment(disk, run.oracle.copy())))
        run.go()
        run.close()
        moments.append(Moment(run.disk.stopped(), run.oracle))
        return moments

    def explore(self, crash_at: int | None = None, *, until: float = float("inf")) -> Tally:
        """All crash points, or one; stops at the first failures and at the time `until`."""
        began = time.monotonic()
        try:
            for point, moment in enumerate(self.moments()):
                if time.monotonic() > until or len(self.tally.failures) >= self._stop_at:
                    break
                if crash_at in (None, point):
                    self._point(point, moment)
        except Exception as error:
            self._failed(-1, [], error)
        self.tally.states = len(self._states)
        self.tally.deeper = max(0, self._memory.states - len(self._states))
        self.tally.recoveries = self._memory.recoveries
        self.tally.seconds += time.monotonic() - began
        return self.tally

    def _failed(self, crash_at: int, path: list[Event], error: BaseException) -> None:
        failure = Failure(self.workload, crash_at, path, violation_of(error))
        failure.violation.__cause__ = error
        self.tally.failures.append(failure)

    def _point(self, crash_at: int, moment: Moment) -> None:
        self.tally.points += 1
        promises = moment.oracle.promises()
        for event, state in self._crashes(moment.disk):
            self._states.add((state.fingerprint(), promises))
            if not self._try(crash_at, event, state, moment.oracle):
                break

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
            if run.go():
                run.close()
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

    def _try(self, crash_at: int, event: Event, state: CrashDisk, oracle: Oracle) -> bool:
        """Put one state through recovery and what follows; False if a promise was broken."""
        trial = Trial(self._options, state, oracle, [event], self.random, self._memory)
        try:
            if not self.workload.fresh:
                check_has_checkpoint(state, self._sound)
            full = self.random.random() < self.depth.full
            chain = self.depth.chain and (full or event["do"] == "kill")
            trial.go(full=full, chain=chain)
        except Exception as error:
            self._failed(crash_at, trial.path, error)
            return False
        return True
