"""The tier: all workloads by hand, and workloads made from seeds, by machines that share a home.

A kill leaves the directory, or loses the machine: then another one goes on, sometimes one that has
followed the home. Answers of the home are lost, or calls arrive late, and other machines take over.
At the operations of the disk and the calls to the home the power fails, the process is killed, or
the machine is lost with all that it had. Each time other engines open the home, with what is left,
with nothing, and with what a machine has that stands by. They must show what was promised.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import count, islice
from random import Random

import fmq
from crash_tests.budget import Budget
from crash_tests.by_hand import WORKLOADS
from crash_tests.engines import PATH, abandon, let_go, violation_of
from crash_tests.failure import Failure
from crash_tests.look import look
from crash_tests.oracle import Oracle, Violation
from crash_tests.run import Run
from crash_tests.seeds import generate
from crash_tests.tally import Tally
from crash_tests.verdict import check
from crash_tests.workload import Workload
from fmq.errors import TakenOver
from fmq.home.home_disk import HomeDisk
from fmq.home.home_follower import HomeFollower
from fmq.home.home_log import HomeLog
from fmq.machine.disk import Directory, Disk
from fmq.testing import CrashDisk, FakeClock
from fmq.testing.fake_home import FakeObjects
from fmq.testing.losses import random_loss

SHARE = 3  # workloads of a run without a budget
EVERY = 11  # a crash is tried at one of so many operations and calls
LOSSES, TORN = 3, 2  # losses of each that are tried: the first ones, and drawn ones
FULL = 0.1  # the share of states from which another machine takes over once more
OBJECT_BYTES = 400, 2000, 1 << 20  # with small ones, an append has several entries
FLOOR_SLOTS = 1, 8, 1000
LOST_ANSWERS = 0.0, 0.05
ARRIVALS = 0.1  # the share of calls to the home ahead of which late ones arrive
LOOKS = 0.05  # and of those ahead of which a machine that stands by looks at the home
RIVALS = 0.0, 0.02  # and of those ahead of which another machine takes over
RETRY_SECONDS = 30


class Machines:
    """One home, and the machines that take it over."""

    def __init__(self, options: fmq.Options, random: Random) -> None:
        self.options = options
        self.random = random
        self.home: dict[str, bytes] = {}
        self.under_way: list[tuple[str, bytes]] = []
        self.numbers = 0
        self.object_bytes = random.choice(OBJECT_BYTES)
        self.floor_slots = random.choice(FLOOR_SLOTS)
        self.lost_answers = random.choice(LOST_ANSWERS)

    def log(self, objects: FakeObjects) -> HomeLog:
        """Return the log of the next machine. It has a clock of its own for what it repeats."""
        self.numbers += 1
        said = {"host": f"machine {self.numbers}", "pid": self.numbers}
        drawn, floor = Random(self.numbers).randbytes, self.floor_slots
        how = objects, drawn, FakeClock(), said
        return HomeLog(*how, retry_seconds=RETRY_SECONDS, floor_slots=floor)

    def objects(self, home: dict[str, bytes]) -> FakeObjects:
        """Return a way to a home to which nothing happens."""
        return FakeObjects(home, object_bytes_max=self.object_bytes)

    def open(self, inner: CrashDisk, home: dict[str, bytes]) -> fmq.Engine:
        """Open `home` on a machine to which nothing happens."""
        return self.open_on(HomeDisk(inner, self.log(self.objects(home))))

    def open_on(self, disk: HomeDisk) -> fmq.Engine:
        return fmq.open(PATH, self.options, disk=disk, clock=FakeClock(), background=False)

    def faulty(self) -> FakeObjects:
        """Return a way to the home on which answers and calls are lost, or late."""
        objects = self.objects(self.home)
        objects.under_way = self.under_way
        ways = objects.lost_answers, objects.lost_calls, objects.late_calls
        for number in range(2000):
            if self.random.random() < self.lost_answers:
                self.random.choice(ways).add(number)
        return objects


class HomeRun(Run):
    """A workload on machines that share a home."""

    def __init__(self, workload: Workload, machines: Machines, rivals: float) -> None:
        super().__init__(workload, CrashDisk())
        self.machines = machines
        self.survives = rivals > 0  # else no call may fail
        self._rivals = rivals
        self._is_alone = False
        self.door = HomeDoor(self)
        self.second = CrashDisk()  # of a machine that stands by
        self._follower: HomeFollower | None = None

    def beside(self, disk: CrashDisk) -> Disk:
        return HomeDisk(disk, self.machines.log(self.machines.objects({**self.machines.home})))

    def after_kill(self, crash_at: int | None) -> CrashDisk:
        if self.machines.random.random() < 0.5:
            return super().after_kill(crash_at)
        self.pin = None  # it was of a process of the machine that is lost
        self.shown = {}
        self._stand_by_no_more()
        left, self.second = self.second, CrashDisk()
        return left

    def calls_home(self, _: str) -> None:
        """Let something happen before a call to the home."""
        random = self.machines.random
        if self._is_alone:
            return
        if self._watcher is not None:
            self._watcher(self)
        self._is_alone = True
        if random.random() < ARRIVALS:
            self.machines.faulty().arrive()
        if random.random() < LOOKS:
            self._look()
        if random.random() < self._rivals:
            self._take_over()
        self._is_alone = False

    def _look(self) -> None:
        """Let the machine that stands by write to its directory what is new in the home."""
        if self._follower is None:
            log = self.machines.log(self.machines.objects(self.machines.home))
            self._follower = HomeFollower(self.second, PATH, log, FakeClock())
        self._follower.look()

    def _stand_by_no_more(self) -> None:
        follower, self._follower = self._follower, None
        if follower is not None:
            follower.close()

    def _take_over(self) -> None:
        """Let another machine take over, and end: the one that stands by, or one that has nothing.
        The former does so only if it has seen the newest entry.
        """
        follower, self._follower = self._follower, None
        if follower is None:
            abandon(self.machines.open(CrashDisk(), self.machines.home))
            return
        with suppress(TakenOver):
            self.machines.open_on(follower.disk_to_take_over()).close()


class HomeDoor:
    """Implements Disk: each engine that asks for the directory takes over the home."""

    def __init__(self, run: HomeRun) -> None:
        self._run = run
        self.disk = run.disk

    def directory(self, path: str, *, make: bool) -> Directory:
        objects = self._run.machines.faulty()
        objects.before = self._run.calls_home
        log = self._run.machines.log(objects)
        return HomeDisk(self.disk, log).directory(path, make=make)

    def random(self, size: int) -> bytes:
        return self.disk.random(size)


class HomeWorkloads:
    """The tier. Without a budget it tries few workloads."""

    name = "home-workloads"

    def __init__(self, every: int = EVERY) -> None:
        self._every = every

    def run(self, budget: Budget) -> Tally:
        tally, states = Tally(self.name), set[tuple[object, ...]]()
        began = time.monotonic(), time.process_time()
        for number, workload in islice(_workloads(budget), budget.first, None):
            enough = budget.states is not None and len(states) >= budget.states
            if enough or tally.failures or not budget.allows(tally.workloads, SHARE):
                break
            tally.workloads += 1
            again = f"--tier {self.name} --seed {budget.seed} --from {number} --rounds 1"
            Tour(workload, budget.seed + number, self._every, states, tally).go(again)
            tally.states = len(states)
            tally.seconds = time.monotonic() - began[0]
            tally.cpu_seconds = time.process_time() - began[1]
            budget.tell(tally, workload.name)
        for failure in tally.failures:
            budget.found(failure)
        tally.note = f"go on with --from {budget.first + tally.workloads}"
        return tally


def _workloads(budget: Budget) -> Iterator[tuple[int, Workload]]:
    """Yield numbers and workloads: all by hand, then one after another made from seeds."""
    by_hand = [*WORKLOADS.values()]
    for number in count():
        known = number < len(by_hand)
        yield number, by_hand[number] if known else generate(budget.seed + number)


class Tour:
    """One workload, and what each crash of it leaves."""

    def __init__(
        self,
        workload: Workload,
        seed: int,
        every: int,
        states: set[tuple[object, ...]],
        tally: Tally,
    ) -> None:
        self._workload, self._seed, self._every = workload, seed, every
        self._states, self._tally = states, tally
        self._random = Random(f"{seed} {workload.name}")
        self._at = 0

    def go(self, again: str) -> None:
        """Run the workload. A failure goes to the tally, with how to try it `again`."""
        random = Random(f"home {self._seed} {self._workload.name}")
        run = HomeRun(self._workload, Machines(fmq.Options(), random), random.choice(RIVALS))
        run.machines.options = run.options
        run.watch(self._crash)
        try:
            run.go()
            if run.engine is not None and not run.survives:
                run.close()
            self._judge(run, CrashDisk(), full=True)
        except Exception as error:
            found = violation_of(error)
            what = f"{found.what} ({self._workload.name}; {again})"
            violation = Violation(found.invariant, what)
            violation.__cause__ = error
            how = [{"do": "crash"}]
            self._tally.failures.append(Failure(self._workload, self._at, how, violation))
        finally:
            run.disk.stop()
            abandon(run.engine)

    def _crash(self, run: Run) -> None:
        self._at += 1
        if (self._at + self._seed) % self._every:
            return
        assert isinstance(run, HomeRun)
        self._tally.points += 1
        disk, random = run.disk, self._random
        losses = [*islice(disk.losses(random.randrange(1 << 30)), LOSSES)]
        losses += [random_loss(disk.pending(), random) for _ in range(TORN)]
        kills = disk.after_kill(), disk.after_kill(written=False)
        home = frozenset(run.machines.home.items())
        second = run.second.after_kill(), run.second.after_power_loss(random.randrange(1 << 30))
        for each in (CrashDisk(), *second, *kills, *map(disk.after, losses)):
            state = self._workload.name, each.fingerprint(), hash(home), run.oracle.promises()
            if state not in self._states:
                self._states.add(state)
                self._judge(run, each, full=random.random() < FULL)

    def _judge(self, run: HomeRun, disk: CrashDisk, *, full: bool) -> None:
        """Raise Violation unless a machine with this directory shows what was promised."""
        self._tally.recoveries += 1
        machines, oracle = run.machines, run.oracle.copy()
        numbers, home = machines.numbers, {**machines.home}
        if self._random.random() < ARRIVALS:
            for key, data in machines.under_way:
                home.setdefault(key, data)
        engine = machines.open(disk, home)
        _check(engine, oracle)
        if full:
            engine.checkpoint()
            engine.close()
            disk = CrashDisk()
            engine = machines.open(disk, home)
            _check(engine, oracle)
        let_go(engine, disk)
        machines.numbers = numbers


def _check(engine: fmq.Engine, oracle: Oracle) -> None:
    check(oracle, look(engine, oracle.tx_names(), oracle.acking()))
