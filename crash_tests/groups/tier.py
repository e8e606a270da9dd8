"""The tier: stories drawn by number, and at each operation of the disk some of its crashes."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import count, islice
from random import Random
from typing import Protocol

from crash_tests.budget import Budget
from crash_tests.engines import violation_of
from crash_tests.failure import Failure
from crash_tests.groups.story import Story
from crash_tests.oracle import Violation
from crash_tests.tally import Tally
from crash_tests.workload import Workload
from fmq.testing import CrashDisk
from fmq.testing.losses import random_loss

SHARE = 12  # how many stories a run without a budget has
LOSSES = 6  # how many losses of each operation are tried
FULL = 0.15  # the share of states in which all messages are consumed and checked


class Told(Protocol):
    """A story, as the tier sees it."""

    @property
    def disk(self) -> CrashDisk:
        """The disk of which crashes are tried."""

    def tell(self) -> None:
        """Make all steps."""

    def judge(self, disk: CrashDisk, *, full: bool) -> None:
        """Raise Violation unless an engine shows what must be there."""


class Groups:
    """Stories about groups, on a disk that crashes."""

    def __init__(
        self,
        name: str = "groups",
        story: Callable[[int], Told] = Story,
        share: int = SHARE,
        torn: int = 0,
        every: int = 1,
    ) -> None:
        """Without a budget, a run has `share` stories. `torn` is how many losses of each operation
        are drawn, besides the first ones: many of these tear a write. A crash is tried at one of
        `every` operations.
        """
        self.name = name
        self._story = story
        self._share = share
        self._torn = torn
        self._every = every

    def run(self, budget: Budget) -> Tally:
        """Run stories until the budget is spent, or one fails."""
        tally = Tally(self.name)
        states: set[str] = set()
        began = time.monotonic(), time.process_time()
        for number in count(budget.first):
            enough = budget.states is not None and len(states) >= budget.states
            if enough or tally.failures or not budget.allows(tally.workloads, self._share):
                break
            tally.workloads += 1
            self.tell(budget.seed + number, states, tally)
            tally.states = len(states)
            tally.seconds = time.monotonic() - began[0]
            tally.cpu_seconds = time.process_time() - began[1]
            budget.tell(tally, f"story {budget.seed + number}")
            if budget.is_over:
                break
        for failure in tally.failures:
            budget.found(failure)
        tally.note = f"go on with --from {budget.first + tally.workloads}"
        return tally

    def tell(self, seed: int, states: set[str], tally: Tally) -> None:
        """Run one story, and check what each crash in it leaves."""
        story, random = self._story(seed), Random(seed)
        at = [0]

        def crash(_: str) -> None:
            at[0] += 1
            if (at[0] + seed) % self._every:
                return
            tally.points += 1
            disk = story.disk
            losses = [*islice(disk.losses(), LOSSES)]
            losses += [random_loss(disk.pending(), random) for _ in range(self._torn)]
            crashed = [disk.after_kill(), *map(disk.after, losses)]
            for each in crashed:
                print_of = f"{seed} {at[0]} {each.fingerprint()}"
                if print_of not in states:
                    states.add(print_of)
                    tally.recoveries += 1
                    story.judge(each, full=random.random() < FULL)

        story.disk.watch(crash)
        try:
            story.tell()
        except Exception as error:
            found = violation_of(error)
            again = f"--tier {self.name} --seed {seed} --rounds 1"
            violation = Violation(found.invariant, f"{found.what} ({again})")
            violation.__cause__ = error
            how = [{"do": "crash"}]
            tally.failures.append(Failure(Workload(f"story {seed}", []), at[0], how, violation))
        finally:
            story.disk.watch(None)
