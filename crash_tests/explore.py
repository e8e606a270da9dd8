"""Tries every crash of a workload that the disk allows, and what recovery makes of each.

For each operation of the workload: the power fails there, or the process is killed. Of each
disk that this may leave: open it and compare with the oracle; close it and open it again; kill
the recovered engine and recover once more; let life go on; and crash recovery itself. A killed
process is followed by a power cut, because what was shown in between must stay.
"""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from random import Random

from crash_tests.directories import check_has_checkpoint
from crash_tests.engines import PATH, abandon, open_engine, options_of, violation_of
from crash_tests.failure import Event, Failure, power
from crash_tests.follower import check_still_shown
from crash_tests.futures import check_futures
from crash_tests.memory import Memory, State
from crash_tests.old_copies import check_old_copies
from crash_tests.oracle import Lane, Oracle, Violation
from crash_tests.run import Run
from crash_tests.tally import Tally
from crash_tests.trial import Trial
from crash_tests.workload import Workload
from fmq.arguments.options import Options
from fmq.testing import CrashDisk, Loss

FUTURES: Event = {"do": "a segment of another future"}
OLD_COPIES: Event = {"do": "an old copy of the last segment"}


@dataclass(slots=True)
class Depth:
    """How much is tried with each state."""

    full: float = 0.2  # the share of states on which everything is tried
    states_max: int = 400  # how many states of one crash point are tried
    chain: bool = True
    honest: bool = True
    twice: float = 0.0  # the share of states whose recovery is crashed everywhere; kills always
    futures: bool = False  # whether old segments, or of another future, are put in place of ours
    followed: bool = True  # whether read-only engines live beside the writer
    every: int = 1  # a crash is tried at one of so many crash points; the seed says at which


@dataclass(frozen=True, slots=True)
class Moment:
    """The disk as it were if the power failed before one operation, and what is promised then."""

    disk: CrashDisk
    oracle: Oracle
    shown: dict[Lane, int] = field(default_factory=dict)
    """How far a reader was shown each queue."""


@cache
def closed_directory(options: str, *, honest: bool) -> CrashDisk:
    """Return a disk with a directory that was made and closed. Copy it before use."""
    disk = CrashDisk(honest=honest)
    open_engine(disk, Options(**json.loads(options))).close()
    return disk


class Explorer:
    """Explores one workload, up to its first failure."""

    def __init__(
        self,
        workload: Workload,
        seed: int = 0,
        depth: Depth | None = None,
        *,
        since: int | None = None,
        memory: Memory | None = None,
    ) -> None:
        """Only the crashes in steps from number `since` on; without it in all, and in a close.

        What `memory` knows, of workloads with the same options, is not tried again.
        """
        self.workload = workload
        self.depth = depth or Depth()
        self.tally = Tally(workload.name, workloads=1)
        self.random = Random(f"{seed} {workload.name}")
        self._seed = seed
        self._options = options_of(workload)
        self._memory = memory or Memory()
        self._before = self._memory.states, self._memory.recoveries
        self.states: set[State] = set()  # new states that a crash of the workload left
        self._since = since

    def start(self, crash_at: int | None = None) -> Run:
        """Return a run that has not begun, in a directory that was made and closed, or in none."""
        return Run(self.workload, self.start_disk(crash_at), crash_at=crash_at)

    def start_disk(self, crash_at: int | None = None) -> CrashDisk:
        honest = self.depth.honest
        if self.workload.fresh:
            return CrashDisk(crash_at, honest=honest)
        options = json.dumps(self.workload.all_options())
        return closed_directory(options, honest=honest).after_kill(crash_at=crash_at)

    def moments(self) -> Iterator[tuple[int, Moment]]:
        """Yield the moments of a run, with their numbers. Raises Violation if it fails without any
        crash.
        """
        moments: list[Moment | None] = []
        since = -1 if self._since is None else self._since

        def note(run: Run) -> None:
            wanted = run.at >= since
            moments.append(
                Moment(run.disk.stopped(), run.oracle.copy(), run.shown) if wanted else None
            )

        run = self.start()
        run.watch(note)
        if self.depth.followed:
            run.follow()
        try:
            run.go()
            if self._since is None:
                run.close()
        finally:
            run.unfollow()
        note(run)
        run.disk.stop()
        abandon(run.engine)
        return ((i, moment) for i, moment in enumerate(moments) if moment is not None)

    def explore(self, crash_at: int | None = None, *, until: float = float("inf")) -> Tally:
        """Try all crash points, or only `crash_at`. Begin no further one after the time `until`."""
        for _ in self.tour(crash_at):
            if time.monotonic() >= until:
                break
        return self.tally

    def tour(self, crash_at: int | None = None) -> Iterator[Tally]:
        """Try one crash point after another, until one fails. Yield the tally after each."""
        began = time.monotonic(), time.process_time()
        path: list[Event] = []
        try:
            for point, moment in self.moments():
                self.tally.points_there += 1
                if crash_at in (None, point) and self._is_tried(point):
                    self.point(point, moment)
                    yield self._note(began)
                if self.tally.failures:
                    break
            if self.depth.futures and crash_at is None and not self.tally.failures:
                path = [FUTURES]
                check_futures(self.start)
                path = [OLD_COPIES]
                check_old_copies(self.start)
        except Exception as error:
            self.failed(-1, path, error)
        self._note(began)

    def _is_tried(self, point: int) -> bool:
        """Return whether `point` is one of the crash points that are tried."""
        return (point + self._seed) % self.depth.every == 0

    def _note(self, began: tuple[float, float]) -> Tally:
        tally = self.count()
        tally.seconds = time.monotonic() - began[0]
        tally.cpu_seconds = time.process_time() - began[1]
        return tally

    def count(self) -> Tally:
        """Return the counts so far."""
        tally = self.tally
        states, recoveries = self._before
        tally.states = len(self.states)
        tally.deeper = max(0, self._memory.states - states - len(self.states))
        tally.recoveries = self._memory.recoveries - recoveries
        return tally

    def take_fresh(self) -> set[State]:
        """Return the states that kept what was promised, except for those that were returned
        before.
        """
        fresh, self._memory.fresh = self._memory.fresh, set()
        return fresh

    def is_new(self, moment: Moment) -> bool:
        """Return whether no earlier moment had this disk and these promises, and note this one."""
        return self._memory.is_new("moment", moment.disk, moment.oracle)

    def failed(self, crash_at: int, path: list[Event], error: BaseException) -> None:
        """Note that a promise was broken by the crash before operation `crash_at`; -1: no crash."""
        failure = Failure(self.workload, crash_at, path, violation_of(error))
        failure.violation.__cause__ = error
        self.tally.failures.append(failure)

    def point(self, crash_at: int, moment: Moment) -> None:
        """Try everything that a crash at this moment may leave."""
        self.tally.points += 1
        promises = moment.oracle.promises()
        for event, state in self.crashes(moment.disk):
            known = state.fingerprint(), promises
            if not self._memory.knows(known):
                self.states.add(known)
            if not self._try(crash_at, event, state, moment):
                break

    def crashes(self, disk: CrashDisk) -> Iterator[tuple[Event, CrashDisk]]:
        seed = self.random.randrange(1 << 30)
        for written in (True, False):
            yield {"do": "kill", "written": written}, disk.after_kill(written=written)
        for state in islice(disk.states(seed), self.depth.states_max):
            assert state.loss is not None
            yield power(state.loss), state

    def crashed(self, at: Run | Moment, event: Event) -> CrashDisk:
        """Return the disk that `event` leaves of a run that is at this moment."""
        if event["do"] == "kill":
            return at.disk.after_kill(written=event["written"])
        return at.disk.after_kill().after(Loss.from_json(event))

    def trial_of(self, at: Run | Moment, event: Event) -> Trial:
        """Return the trial of the disk that `event` leaves."""
        return Trial(self._options, self.crashed(at, event), at.oracle, [event], self._seed)

    def replay(self, failure: Failure) -> Violation | None:
        """Return the failure that appears now at the place of `failure`; None if there is none."""
        try:
            if failure.path == [FUTURES]:
                check_futures(self.start)
                return None
            if failure.path == [OLD_COPIES]:
                check_old_copies(self.start)
                return None
            run = self.start(None if failure.crash_at < 0 else failure.crash_at)
            self.go(run)
            if failure.crash_at < 0:
                return None
            first, *rest = failure.path
            self._check_still_shown(first, self.crashed(run, first), run)
            self.trial_of(run, first).replay(rest)
        except Exception as error:
            violation = violation_of(error)
            violation.__cause__ = error
            return violation
        return None

    def go(self, run: Run) -> None:
        """Let `run` go up to its crash, or to a clean close, with its followers."""
        if self.depth.followed:
            run.follow()
        try:
            if run.go():
                run.close()
        finally:
            run.unfollow()

    def _check_still_shown(self, event: Event, state: CrashDisk, at: Run | Moment) -> None:
        if event["do"] == "kill" and at.shown and self.depth.honest:
            check_still_shown(state.after_kill(), self._options, at.shown)

    def _draw(self, state: CrashDisk) -> float:
        """Return a number from 0 to 1 that depends only on the seed and what the disk holds."""
        return zlib.crc32(f"{self._seed} {state.fingerprint()}".encode()) / (1 << 32)

    def _try(self, crash_at: int, event: Event, state: CrashDisk, moment: Moment) -> bool:
        """Recover one state, and make the calls that follow. Return False if a promise was
        broken.
        """
        trial = Trial(self._options, state, moment.oracle, [event], self._seed, self._memory)
        full = self._draw(state) < self.depth.full
        chain = self.depth.chain and (full or event["do"] == "kill")
        twice = self.depth.twice > 0 and (
            event["do"] == "kill" or self._draw(state) < self.depth.twice
        )
        try:
            self._check_still_shown(event, state, moment)
            if not self.workload.fresh:
                check_has_checkpoint(state.files(PATH), self._memory.sound)
            trial.go(full=full, chain=chain, twice=twice)
        except Exception as error:
            self.failed(crash_at, trial.path, error)
            return False
        return True
