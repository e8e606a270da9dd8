"""Many schedules of the same threads, one after another, with crashes at the moments of each."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from random import Random

from crash_tests.engines import violation_of
from crash_tests.explore import Depth, Explorer
from crash_tests.failure import Failure
from crash_tests.oracle import Violation
from crash_tests.tally import Tally
from crash_tests.threads.choosers import Chance, Follow
from crash_tests.threads.play import Play
from crash_tests.threads.schedule import Schedule
from crash_tests.threads.scheduler import Chooser
from crash_tests.workload import Workload

STATES_MAX = 6  # limit of states of one moment
POINTS_MAX = 4  # limit of crash points of one random schedule
LINES = 0.7  # the share of random schedules in which a thread may be stopped at any line


class Tour:
    """Schedules of one workload, up to the first failure. What a crash leaves is tried once,
    whichever schedule leaves it.
    """

    def __init__(self, workload: Workload, seed: int, depth: Depth) -> None:
        self.workload = workload
        self.failure: Failure | None = None
        self._explorer = Explorer(workload, seed, replace(depth, states_max=STATES_MAX))
        self._seed = seed
        self._schedules = 0
        self._seams = {True: 100, False: 20}  # about how often there is a choice

    def by_chance(self) -> Tally:
        """Run one more schedule, different from all before."""
        random = Random(f"{self._seed} {self.workload.name} {self._schedules}")
        lines = random.random() < LINES
        chooser = Chance(random, random.randint(1, POINTS_MAX), self._seams[lines])
        tally = self._try(chooser, lines=lines)
        self._seams[lines] = chooser.asked
        return tally

    def all_of(self, preemptions: int, every: int = 1) -> Iterator[tuple[Tally, int]]:
        """Yield every schedule with at most so many preemptions, the simple ones first, with the
        number of those known to be left. After the first, one of `every` is run.
        """
        left = deque([Schedule(lines=False)])
        for number in count():
            if not left:
                break
            schedule = left.popleft()
            if number and (number + self._seed) % every:
                continue
            tally, chooser = self.follow(schedule)
            for choice in chooser.open:
                longer = replace(schedule, choices=(*schedule.choices, choice))
                if longer.preemptions <= preemptions:
                    left.append(longer)
            yield tally, len(left)

    def follow(self, schedule: Schedule) -> tuple[Tally, Follow]:
        """Run this schedule. Return what could have been chosen after its last choice."""
        chooser = Follow(schedule)
        return self._try(chooser, lines=schedule.lines), chooser

    def _try(self, chooser: Chooser, *, lines: bool) -> Tally:
        began, before = time.monotonic(), replace(self._explorer.count())
        play = Play(self.workload, chooser, lines=lines, honest=self._explorer.depth.honest)
        try:
            play.go()
            for number, moment in enumerate(play.moments):
                if self._explorer.is_new(moment):
                    self._explorer.point(number, moment)
                if self._explorer.tally.failures:
                    break
        except Exception as error:
            self._explorer.failed(-1, [], error)
        self._schedules += 1
        tally = self._since(before)
        tally.seconds = time.monotonic() - began
        for failure in tally.failures:
            failure.schedule = Schedule(lines, tuple(play.scheduler.choices))
            self.failure = failure
        return tally

    def _since(self, before: Tally) -> Tally:
        now = self._explorer.count()
        return Tally(
            workloads=int(self._schedules == 1),
            schedules=1,
            points=now.points - before.points,
            states=now.states - before.states,
            deeper=now.deeper - before.deeper,
            recoveries=now.recoveries - before.recoveries,
            failures=now.failures[:],
        )


def replayed(failure: Failure, *, honest: bool = True) -> tuple[Play, Violation | None]:
    """Run the schedule of `failure` once more. Return the failure that appears at its place; None
    if none does.
    """
    assert failure.schedule is not None
    explorer = Explorer(failure.workload, depth=Depth(honest=honest))
    schedule = failure.schedule
    play = Play(failure.workload, Follow(schedule), lines=schedule.lines, honest=honest)
    try:
        play.go()
        if 0 <= failure.crash_at < len(play.moments):
            first, *rest = failure.path
            explorer.trial_of(play.moments[failure.crash_at], first).replay(rest)
    except Exception as error:
        violation = violation_of(error)
        violation.__cause__ = error
        return play, violation
    return play, None
