"""Runs a workload on a disk whose operations fail, one at a time, while the application goes on.

Whatever is refused is refused whole, what is unknown is whole or absent, what was acknowledged
survives the power cut that follows; and an engine that has failed acknowledges nothing more.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Iterator
from itertools import islice
from random import Random

from crash_tests.budget import Budget
from crash_tests.by_hand import WORKLOADS
from crash_tests.engines import abandon, options_of, violation_of
from crash_tests.explore import Explorer
from crash_tests.failure import Failure
from crash_tests.memory import Memory
from crash_tests.oracle import Violation
from crash_tests.orders import CHANGING, READING, Order, orders_for
from crash_tests.run import Run
from crash_tests.seeds import generate
from crash_tests.sweep import FAILURES_MAX
from crash_tests.tally import Tally
from crash_tests.trial import Trial
from crash_tests.workload import Workload
from fmq.testing import CrashDisk, FaultDisk
from fmq.testing.faults import Operation

STATES_MAX = 6
OF_EVERY_RUN = ("send", "two-phase", "roll", "checkpoint", "retention-after-a-pin", "never")


class FaultTour:
    """Lets each operation of a workload fail in turn."""

    def __init__(self, workload: Workload, seed: int = 0) -> None:
        self.workload = workload
        self._explorer = Explorer(workload, seed)
        self._seed = seed
        self._random = Random(f"{seed} {workload.name}")
        self.orders = 0
        self.states = 0
        self.unknown = 0

    def start(self) -> tuple[Run, FaultDisk]:
        run = self._explorer.start()
        run.survives = True
        disk = FaultDisk(run.disk)
        run.door = disk
        return run, disk

    def counts(self, operations: tuple[Operation, ...]) -> dict[Operation, int]:
        run, disk = self.start()
        run.go()
        abandon(run.engine)
        return {operation: disk.count(operation) for operation in operations}

    def all_orders(self, operations: tuple[Operation, ...]) -> Iterator[Order]:
        """Yield every operation of these kinds, with every error that it may meet."""
        for operation, count in self.counts(operations).items():
            for nth in range(count):
                yield from orders_for(operation, nth)

    def persistent_full_disk(self) -> Iterator[Order]:
        """Yield orders by which the disk is full from some moment on."""
        for operation, count in self.counts(("create", "allocate")).items():
            for nth in range(count):
                yield Order(operation, nth, errno.ENOSPC, persistently=True)

    def check(self, order: Order) -> None:
        """Raise Violation if the fault costs a promise."""
        self.orders += 1
        run, disk = self.start()
        order.give(disk)
        try:
            run.go()
            self.unknown += run.unknown
            self._check_ends(run)
        except Exception as error:
            violation = violation_of(error)
            step = self.workload.steps[run.at] if 0 <= run.at < len(self.workload.steps) else "open"
            what = f"{violation.what}\n  {self.workload.name}: {order}; step {run.at}: {step}"
            raise Violation(violation.invariant, what) from error
        finally:
            run.disk.stop()
            abandon(run.engine)

    def _check_ends(self, run: Run) -> None:
        memory = Memory()
        for state in self._ends(run.disk):
            options = options_of(self.workload)
            trial = Trial(options, state, run.oracle, [], self._seed, memory)
            trial.check()
        trial.live_on()
        self.states += memory.states

    def _ends(self, disk: CrashDisk) -> Iterator[CrashDisk]:
        yield from islice(disk.states(self._random.randrange(1 << 30)), STATES_MAX)
        yield disk.after_kill()


class Faults:
    """Every fault of some workloads by hand. With more time, also of all workloads by hand, and of
    seeds.
    """

    name = "faults"

    def run(self, budget: Budget) -> Tally:
        total = Tally(self.name)
        for workload in islice(self._workloads(budget), budget.rounds):
            tally = Tally(workload.name, workloads=1)
            for order in self._orders(workload, budget):
                if budget.is_over or tally.failures:
                    break
                tally = tally.plus(self._try(workload, order, budget))
                budget.tell(total.plus(tally), workload.name)
            total = total.plus(tally)
            enough = budget.states is not None and total.all_states >= budget.states
            if enough or budget.is_over or len(total.failures) >= FAILURES_MAX:
                break
        return total

    def _workloads(self, budget: Budget) -> Iterator[Workload]:
        if budget.workload:
            yield WORKLOADS[budget.workload]
        elif budget.is_unlimited:
            yield from (WORKLOADS[name] for name in OF_EVERY_RUN)
        else:
            yield from WORKLOADS.values()
            for number in range(1 << 30):
                yield generate(budget.seed + number)

    def _orders(self, workload: Workload, budget: Budget) -> Iterator[Order]:
        tour = FaultTour(workload, budget.seed)
        yield from tour.all_orders((*CHANGING, *READING))
        yield from tour.persistent_full_disk()

    def _try(self, workload: Workload, order: Order, budget: Budget) -> Tally:
        began = time.monotonic()
        tour = FaultTour(workload, budget.seed)
        tally = Tally(faults=1)
        try:
            tour.check(order)
        except Violation as violation:
            failure = Failure(workload, -1, [], violation, order)
            tally.failures.append(failure)
            budget.found(failure)
        tally.states = tally.recoveries = tour.states
        tally.seconds = time.monotonic() - began
        return tally


def check_again(failure: Failure) -> Violation | None:
    """Return the failure that a fault causes now at the place of `failure`; None if there is
    none.
    """
    assert failure.order is not None
    try:
        FaultTour(failure.workload).check(failure.order)
    except Violation as violation:
        return violation
    return None
